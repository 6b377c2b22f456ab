// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Predicts the order in which units are opened. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

class Order {
public:
    Order(vescomm_fsdp_order_t kind, int units);

    // Begins a micro-batch. Those of evaluation have no backward, and an order of their own.
    void begin(bool evaluation);
    // Ends it: what was recorded becomes the order of the next one.
    void end();
    // Forgets an unfinished micro-batch.
    void reset();
    // A unit is opened for forward or backward. Recomputation is not part of the order.
    void opened(int unit, bool backward);

    // The next units after the last one that was opened, each once, at most `count`.
    std::vector<int> upcoming(std::size_t count) const;
    // The units that the next micro-batch of training opens first, each once, at most `count`.
    std::vector<int> first(std::size_t count) const;

    // Micro-batches that deviated from the order so far.
    std::uint64_t deviations() const { return deviations_; }

private:
    struct Open {
        int unit;
        bool backward;
        bool operator==(const Open &) const = default;
    };
    using Sequence = std::vector<Open>;

    void deviate();
    // The units of a sequence from a position on, each once, at most `count`.
    std::vector<int> distinct(const Sequence &sequence, std::size_t from, std::size_t count) const;

    vescomm_fsdp_order_t kind_;
    std::size_t units_;
    Sequence expected_[2];  // of training, of evaluation
    Sequence recorded_;  // this micro-batch
    bool evaluation_ = false;
    bool known_ = false;  // expected_ predicts this micro-batch
    bool deviated_ = false;  // in this micro-batch
    std::size_t next_ = 0;  // position in expected_
    std::uint64_t deviations_ = 0;
};

}  // namespace vescomm::fsdp
