// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vescomm {

// What this process may use of a machine, for people. A plain value.
struct Hardware {
    // Equal caches of one level: how many, and how many cores share each.
    struct Caches {
        int level = 0;
        std::uint64_t bytes = 0;  // of each
        int count = 0;
        int cores = 0;
        bool operator==(const Caches &) const = default;
    };
    int cores = 0;
    int threads = 0;  // of all cores
    int numa_nodes = 0;
    std::vector<Caches> caches;  // levels 2 and 3
    std::vector<std::string> networks;  // cards, as the system calls them

    bool operator==(const Hardware &) const = default;
};

// Asks hwloc: about this machine, or one that a synthetic description makes up. Only tools link it.
// Throws Error(SYSTEM).
Hardware read_hardware(const std::string &synthetic = {});

// One line for each kind of thing.
std::string describe(const Hardware &hardware);

}  // namespace vescomm
