// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vescomm::internal {

// The hardware that this process may use, to be printed. A plain value.
struct Hardware {
    // A group of equal caches of one level.
    struct Caches {
        int level = 0;
        std::uint64_t bytes = 0;  // size of each cache
        int count = 0;
        int cores = 0;  // that share each cache
        bool operator==(const Caches &) const = default;
    };
    int cores = 0;
    int threads = 0;  // hardware threads of all cores
    int numa_nodes = 0;
    std::vector<Caches> caches;  // levels 2 and 3
    std::vector<std::string> networks;  // names of network devices

    bool operator==(const Hardware &) const = default;
};

// Reads the hardware with hwloc: this machine, or the machine of a synthetic description. Only
// tools link hwloc. Throws Error(SYSTEM).
Hardware read_hardware(const std::string &synthetic = {});

// Describes the hardware in a few lines of text: cores, caches, networks.
std::string describe(const Hardware &hardware);

}  // namespace vescomm::internal
