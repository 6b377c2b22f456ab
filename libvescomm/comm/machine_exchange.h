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

namespace vescomm {

// What each rank tells the others, while they meet, of where it runs: its host and the cores that
// it may use. Rank 0 adds what was measured, and whether links are TCP, so that all ranks choose by
// the same numbers. Throws Error(INVALID_ARGUMENT) where the user has named a file that is none.
std::string machine_text(int rank, const Config &config);

struct MachineExchange {
    Machine machine;
    std::vector<int> cores;  // of each node, that its ranks may use together
};

// A pure function of what all ranks told.
MachineExchange machine_exchange(const Nodes &nodes, std::span<const std::string> told);

// What ranks on nodes like this one, which have cores enough, would choose by; of links of a kind.
Machine machine_here(const Config &config, bool tcp);

// What a file says; none: there is none, or it is empty. Throws Error(INVALID_ARGUMENT), which
// calls it `variable` and its name.
std::optional<MachineFile> read_machine_file(const std::string &name,
                                             const std::string &variable = {});

// Whether it was measured on a machine like this one.
bool is_of_this_machine(const MachineFile &file);

// The file for the machine on which this process runs; empty where the system names no folder.
std::string own_machine_file(const Environment &environment);

}  // namespace vescomm
