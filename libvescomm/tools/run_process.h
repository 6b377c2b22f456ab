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

namespace vescomm {

// How one rank is to be started.
struct ProcessPlan {
    std::vector<std::string> program;
    // Set in its environment, or removed from it when there is no value.
    std::vector<std::pair<std::string, std::optional<std::string>>> variables;
    int keep_descriptor = -1;  // stays open in the program; -1: none
    bool takes_input = false;  // standard input is the launcher's; otherwise empty
    bool own_group = true;  // so that what it starts can be ended with it
    std::optional<cpu_set_t> cores;  // nothing: any
    sigset_t signal_mask;  // the launcher's own before it blocked any
};

struct StartedProcess {
    pid_t id = -1;
    Descriptor output;  // what it writes; non-blocking
    Descriptor errors;
};

// Starts a process that dies with the launcher. Throws NotStarted.
StartedProcess start_process(const ProcessPlan &plan);

struct NotStarted {
    int exit_code;  // as a shell would give: 127 when the program does not exist, 126 otherwise
    std::string why;
};

}  // namespace vescomm
