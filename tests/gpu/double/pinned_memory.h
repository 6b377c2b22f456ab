// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <map>

namespace gpu_double {

// Host memory of cudaHostAlloc(), which kernels can access at its address.
//
// Threads: the caller holds the lock of the double.
class PinnedMemory {
public:
    void add(const void *begin, std::size_t bytes) {
        allocations_[static_cast<const char *>(begin)] = {bytes};
    }
    void remove(const void *begin) { allocations_.erase(static_cast<const char *>(begin)); }
    // True if all bytes lie in one allocation.
    bool contains(const void *address, std::size_t bytes) const {
        const auto *first = static_cast<const char *>(address);
        const auto next = allocations_.upper_bound(first);
        if (next == allocations_.begin()) return false;
        const auto &[begin, allocation] = *std::prev(next);
        return first + bytes <= begin + allocation.bytes;
    }

private:
    struct Allocation {
        std::size_t bytes = 0;
    };
    std::map<const char *, Allocation> allocations_;  // by first address
};

}  // namespace gpu_double
