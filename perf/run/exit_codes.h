// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace vescomm::perf {

// Exit codes of nccl-tests.
enum class ExitCode {
    success = 0,
    internal = 1,  // an error of the operating system or a defect of this program
    failed = 3,  // an implementation failed, or one of its processes died
    timeout = 4,
    not_implemented = 5,  // no implementation has the operation
    usage = 6,
    results = 7,  // wrong elements, or bandwidth below the floor
    interrupted = 130,
};

struct Failure : std::runtime_error {
    Failure(ExitCode given, const std::string &sentence)
        : std::runtime_error(sentence), code(given) {}
    ExitCode code;
};

}  // namespace vescomm::perf
