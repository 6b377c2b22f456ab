// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of {fmt} that are not templates, compiled once. As a header-only library they are
// compiled in every file that formats text, which takes two thirds of the time for it. To link the
// shared library instead would tie libvescomm.so to one version of it.
//
// This file alone defines FMT_HEADER_ONLY. It is compiled without inlining, so the functions that
// are used here, and all that they call, can be linked from other files.
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <string>

namespace vescomm {

struct FmtFunctions {
    std::string (*format)(fmt::string_view, fmt::format_args);
    void (*print)(fmt::string_view, fmt::format_args);
    void (*print_to)(std::FILE *, fmt::string_view, fmt::format_args);
    std::string (*format_time)(const std::tm &);
};

extern const FmtFunctions fmt_functions;
const FmtFunctions fmt_functions = {
    &fmt::vformat,
    &fmt::vprint,
    &fmt::vprint,
    [](const std::tm &time) { return fmt::format("{:%F}", time); },
};

}  // namespace vescomm
