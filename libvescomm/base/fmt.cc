// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compiles the functions of {fmt} that are not templates once. With the header-only library, every
// file that formats text would compile them, which takes two thirds of its compile time. Linking
// the shared library would tie libvescomm.so to one version of {fmt}.
//
// Only this file defines FMT_HEADER_ONLY. It is compiled without inlining, so that other files can
// link the functions that are used here and all functions that these call.
#ifndef FMT_HEADER_ONLY
#define FMT_HEADER_ONLY
#endif
#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace vescomm::internal {

struct FmtFunctions {
    std::string (*format)(fmt::string_view, fmt::format_args);
    void (*print)(fmt::string_view, fmt::format_args);
    void (*print_to)(std::FILE *, fmt::string_view, fmt::format_args);
};

extern const FmtFunctions fmt_functions;
const FmtFunctions fmt_functions = {
    &fmt::vformat,
    &fmt::vprint,
    &fmt::vprint,
};

}  // namespace vescomm::internal
