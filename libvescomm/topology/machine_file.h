// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "topology/machine.h"

namespace vescomm::internal {

// The results of vescomm-info --measure, which later communicators read. The file is a few lines of
// text:
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
    std::string processor;  // model name of the measured machine
    int cores = 0;  // all cores of the measured machine, whether or not this process may use them
    enum class Links { none, tcp, rdma } links = Links::none;  // measured links between nodes
    // Only measured fields are valid. Fields of links are valid if `links` is not none.
    Machine machine;

    bool operator==(const MachineFile &) const = default;
};

std::string to_text(const MachineFile &file);

// Parses the text of a machine file. The text is not trusted: every field must be present once, in
// order and within plausible bounds. Otherwise throws Error(INVALID_ARGUMENT) that names the file,
// the line and the mistake.
MachineFile parse_machine_file(std::string_view text, const std::string &name);

// Copies the measured fields into `machine`. Fields of links are copied only if they were measured
// over the transport in use: TCP if `tcp`, else RDMA.
void apply(const MachineFile &file, bool tcp, Machine &machine);

// Name of the file for a machine: in `folder`, derived from the processor and the number of cores.
std::string machine_file_name(const std::string &folder, const std::string &processor, int cores);

}  // namespace vescomm::internal
