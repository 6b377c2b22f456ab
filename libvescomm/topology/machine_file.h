// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "topology/machine.h"

namespace vescomm {

// What was measured once, for every communicator that follows: a few lines of text.
//
//     vescomm machine 1
//     processor AMD EPYC 9575F
//     cores 64
//     cache_bytes 33554432
//     ...
//     links tcp
//     put_step_seconds 2.1e-06
//     ...
struct MachineFile {
    // What it was measured on.
    std::string processor;
    int cores = 0;  // of the machine, whoever may use them
    enum class Links { none, tcp, rdma } links = Links::none;
    // The fields that are measured; those of links only where there are any.
    Machine machine;

    bool operator==(const MachineFile &) const = default;
};

std::string to_text(const MachineFile &file);

// The text of a file may be anything. Throws Error(INVALID_ARGUMENT) that says the file, the line
// and what is wrong with it: every field must be there once, and within what a machine can be.
MachineFile parse_machine_file(std::string_view text, const std::string &name);

// Takes what was measured into a machine that has the rest: of links only if they are of its kind.
void apply(const MachineFile &file, bool tcp, Machine &machine);

// Where the file of a machine is: below `folder`, by what it is measured on.
std::string machine_file_name(const std::string &folder, const std::string &processor, int cores);

}  // namespace vescomm
