// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iterator>
#include <map>

#include "gpu/double/access_order.h"

namespace gpu_double {

// Host memory of cudaHostAlloc(), which kernels can access at its address.
//
// Threads: the caller holds the lock of the double.
class PinnedMemory {
public:
    struct Allocation {
        const char *begin = nullptr;
        std::size_t bytes = 0;
        // A wait of the host for one device is not known to the streams of the others.
        AccessOrder order{AccessOrder::Compared::within_device};
    };

    void add(const void *begin, std::size_t bytes) {
        const auto *first = static_cast<const char *>(begin);
        allocations_[first] = {.begin = first, .bytes = bytes};
    }
    // All accesses so far happened before later ones.
    void forget_accesses() {
        for (auto &[begin, allocation] : allocations_) allocation.order.forget();
    }
    void remove(const void *begin) { allocations_.erase(static_cast<const char *>(begin)); }
    // The allocation in which all bytes lie; nullptr if there is none.
    Allocation *find(const void *address, std::size_t bytes) {
        const auto *first = static_cast<const char *>(address);
        const auto next = allocations_.upper_bound(first);
        if (next == allocations_.begin()) return nullptr;
        Allocation &found = std::prev(next)->second;
        return first + bytes <= found.begin + found.bytes ? &found : nullptr;
    }

private:
    std::map<const char *, Allocation> allocations_;  // by first address
};

}  // namespace gpu_double
