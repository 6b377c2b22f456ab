// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "topology/machine_file.h"
#include "topology/nodes.h"

namespace vescomm::internal {

// The text that each rank sends when the ranks connect: the cores that it may use, and its host.
// Rank 0 adds whether links are TCP, and the measured constants, so that all ranks choose by the
// same numbers. Throws Error(INVALID_ARGUMENT) if VESCOMM_MACHINE names no valid machine file.
std::string machine_text(int rank, const Config &config);

struct MachineExchange {
    Machine machine;
    std::vector<int> cores;  // by node: number of cores that its ranks may use together
};

// A pure function. `texts`: machine_text() of all ranks, by rank.
MachineExchange machine_exchange(const Nodes &nodes, std::span<const std::string> texts);

// The texts of some of the ranks, which then are all ranks of another communicator. The constants
// are those of rank 0 of `texts`.
std::vector<std::string> texts_of_members(std::span<const std::string> texts,
                                          std::span<const int> members);

// True if links between nodes will be TCP, judged by this machine and its settings alone.
bool expects_tcp(const Config &config);

// The machine model for nodes like this one that have a core for each rank. `tcp`: links are TCP,
// otherwise RDMA.
Machine machine_here(const Config &config, bool tcp);

// Reads a machine file. Nothing: there is no such file, or it is empty. Throws
// Error(INVALID_ARGUMENT), whose sentence names the file after `variable`.
std::optional<MachineFile> read_machine_file(const std::string &name,
                                             const std::string &variable = {});

// True: the file was measured on a machine like this one.
bool is_of_this_machine(const MachineFile &file);

// Name of the file for the machine of this process; empty: the environment names no folder.
std::string own_machine_file(const Environment &environment);

}  // namespace vescomm::internal
