// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

namespace vescomm::internal {

// The end of a list, or no lane, packet or counter.
inline constexpr std::uint32_t no_index = std::numeric_limits<std::uint32_t>::max();

// A linked list of elements of a vector, by index. Each element has a member `next`, so it is in
// one list at most.
struct IndexList {
    std::uint32_t first = no_index;
    std::uint32_t last = no_index;

    bool empty() const { return first == no_index; }

    template <typename Elements>
    void append(Elements &elements, std::uint32_t index) {
        elements[index].next = no_index;
        (empty() ? first : elements[last].next) = index;
        last = index;
    }
    // Removes the first element; no_index: the list is empty.
    template <typename Elements>
    std::uint32_t take(Elements &elements) {
        const std::uint32_t index = first;
        if (!empty()) first = elements[index].next;
        return index;
    }
};

}  // namespace vescomm::internal
