// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Vectors in registered memory, while the pool of the rank has space, or in private memory.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <vector>

#include "vescomm/vescomm.h"

namespace vescomm::internal::testing_support {

template <typename T>
class PoolAllocator {
public:
    using value_type = T;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    // `comm`: nullptr: private memory.
    explicit PoolAllocator(vescomm_comm_t *comm) : comm_(comm) {}
    template <typename U>
    PoolAllocator(const PoolAllocator<U> &other) : comm_(other.comm()) {}

    T *allocate(std::size_t count) {
        void *data = nullptr;
        if (comm_ != nullptr && vescomm_malloc(comm_, count * sizeof(T), &data) == VESCOMM_OK)
            return static_cast<T *>(data);
        return static_cast<T *>(::operator new(count * sizeof(T)));
    }
    void deallocate(T *data, std::size_t) {
        if (comm_ == nullptr || vescomm_mfree(comm_, data) != VESCOMM_OK) ::operator delete(data);
    }

    vescomm_comm_t *comm() const { return comm_; }
    bool operator==(const PoolAllocator &) const = default;

private:
    vescomm_comm_t *comm_;
};

template <typename T>
using RegisteredVector = std::vector<T, PoolAllocator<T>>;

}  // namespace vescomm::internal::testing_support
