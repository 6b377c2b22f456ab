// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/order.h"

#include <algorithm>
#include <utility>

namespace vescomm::fsdp {

Order::Order(vescomm_fsdp_order_t kind, int units)
    : kind_(kind), units_(static_cast<std::size_t>(units)) {
    if (kind != VESCOMM_FSDP_DECLARED) return;
    for (int unit = 0; unit < units; ++unit)
        for (Sequence &sequence : expected_) sequence.push_back({unit, false});
    for (int unit = units; unit-- > 0;) expected_[0].push_back({unit, true});
}

void Order::begin(bool evaluation) {
    evaluation_ = evaluation;
    recorded_.clear();
    next_ = 0;
    deviated_ = false;
    known_ = kind_ != VESCOMM_FSDP_EXPLICIT && !expected_[evaluation].empty();
}

void Order::end() {
    if (kind_ != VESCOMM_FSDP_RECORDED) return;
    // A shorter micro-batch, such as one that was interrupted, deviates too.
    if (known_ && next_ != expected_[evaluation_].size()) deviate();
    expected_[evaluation_] = std::move(recorded_);
    recorded_.clear();
}

void Order::reset() {
    recorded_.clear();
    known_ = false;
}

void Order::opened(int unit, bool backward) {
    const Open open{unit, backward};
    if (kind_ == VESCOMM_FSDP_RECORDED) recorded_.push_back(open);
    if (!known_) return;
    const Sequence &expected = expected_[evaluation_];
    if (next_ < expected.size() && expected[next_] == open) {
        ++next_;
        return;
    }
    deviate();
    if (kind_ == VESCOMM_FSDP_RECORDED) {
        known_ = false;
        return;
    }
    // The declared order continues behind the unit.
    const auto at = std::find(expected.begin(), expected.end(), open);
    next_ = at == expected.end() ? expected.size() : at - expected.begin() + 1;
}

void Order::deviate() {
    if (!deviated_) ++deviations_;
    deviated_ = true;
}

std::vector<int> Order::upcoming(std::size_t count) const {
    if (!known_) return {};
    return distinct(expected_[evaluation_], next_, count);
}

std::vector<int> Order::first(std::size_t count) const {
    return distinct(expected_[0], 0, count);
}

std::vector<int> Order::distinct(const Sequence &sequence, std::size_t from,
                                 std::size_t count) const {
    std::vector<int> units;
    std::vector<bool> seen(units_, false);
    for (std::size_t i = from; i < sequence.size() && units.size() < count; ++i) {
        const int unit = sequence[i].unit;
        if (!seen[static_cast<std::size_t>(unit)]) units.push_back(unit);
        seen[static_cast<std::size_t>(unit)] = true;
    }
    return units;
}

}  // namespace vescomm::fsdp
