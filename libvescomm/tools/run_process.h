// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace vescomm::internal {

// Parameters of the process of one rank.
struct ProcessPlan {
    std::vector<std::string> program;  // and its arguments
    // Environment variables to set, or to remove if they have no value.
    std::vector<std::pair<std::string, std::optional<std::string>>> variables;
    int keep_descriptor = -1;  // stays open in the program; -1: none
    bool takes_input = false;  // inherits the launcher's standard input; else it is /dev/null
    bool own_group = true;  // own process group, so that its children can be ended with it
    std::optional<cpu_set_t> cores;  // nullopt: any
    sigset_t signal_mask;  // of the launcher before it blocked signals
};

struct StartedProcess {
    pid_t id = -1;
    Descriptor output;  // pipe from its standard output; non-blocking
    Descriptor errors;  // pipe from its standard error; non-blocking
};

// Starts a process that dies with the launcher. Throws NotStarted.
StartedProcess start_process(const ProcessPlan &plan);

struct NotStarted {
    int exit_code;  // as a shell would give: 127 when the program does not exist, 126 otherwise
    std::string why;
};

}  // namespace vescomm::internal
