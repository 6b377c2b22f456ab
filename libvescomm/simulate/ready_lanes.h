// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "simulate/program.h"

namespace vescomm::internal {

// The lanes of a rank that can advance, in the order in which the executor reaches them: the
// executor passes over all lanes again and again.
class ReadyLanes {
public:
    void add(std::uint32_t lane) {
        const std::uint64_t pass = lane > last_ ? passes_ : passes_ + 1;
        lanes_.push_back(pass << 32 | lane);
        std::ranges::push_heap(lanes_, std::greater());
    }
    std::uint32_t next() {
        if (lanes_.empty()) return no_index;
        std::ranges::pop_heap(lanes_, std::greater());
        passes_ = lanes_.back() >> 32;
        const auto lane = static_cast<std::uint32_t>(lanes_.back());
        lanes_.pop_back();
        last_ = lane;
        return lane;
    }

private:
    std::vector<std::uint64_t> lanes_;  // a heap of (pass, lane)
    std::uint64_t passes_ = 0;
    std::int64_t last_ = -1;
};

}  // namespace vescomm::internal
