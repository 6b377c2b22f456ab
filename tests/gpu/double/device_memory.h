// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/double/access_order.h"

namespace gpu_double {

// An allocation of device memory. It stays in the table after it is freed, because addresses are
// never used twice.
struct Allocation {
    std::uint64_t number = 0;  // counted from 1
    char *begin = nullptr;
    std::size_t bytes = 0;
    bool of_nccl = false;  // from ncclMemAlloc()
    bool freed = false;
    int device = 0;
    AccessOrder order;
    // memory of NCCL, which other devices may access
    AccessOrder across{AccessOrder::Compared::across_devices};
};

// Device memory: addresses without access rights, and a second mapping of the same bytes.
//
// Threads: the caller holds the lock of the double.
class DeviceMemory {
public:
    DeviceMemory();

    void *allocate(std::size_t bytes, bool of_nccl, int device);
    void free(Allocation &allocation);
    // The allocation that contains the address, freed or not; nullptr if there is none.
    Allocation *find(const void *address);
    bool contains(const void *address) const;
    // All accesses so far happened before later ones.
    void forget_accesses();
    // The first address, and the number of bytes.
    std::pair<std::uint64_t, std::uint64_t> addresses() const;
    // The bytes at a device address.
    char *view(const void *address) const;

private:
    int file_ = -1;
    char *base_ = nullptr, *view_ = nullptr;
    std::size_t used_ = 0;
    std::map<const char *, Allocation> allocations_;  // by first address
};

}  // namespace gpu_double
