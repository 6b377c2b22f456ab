// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gradient_norm.h"

#include <memory>

namespace vescomm::fsdp {

GradientNorm::GradientNorm(const ModelPlan &plan, const Shards &shards, Comms &comms,
                           PhaseTimes &times)
    : plan_(plan),
      shards_(shards),
      comms_(comms),
      times_(times),
      added_(plan.of_unit.size(), false) {}

void GradientNorm::begin(bool last) {
    // Replicas are summed later, all units together.
    at_once_ = last && plan_.mesh.replicas() == 1;
    added_.assign(added_.size(), false);
    sum_ = {};
}

void GradientNorm::add(std::size_t unit) {
    if (!at_once_) return;
    if (!added_[unit]) return add_squares(unit);
    // A second sum has changed the gradients of the unit.
    begin(false);
}

void GradientNorm::finish() {
    at_once_ = false;
    for (std::size_t unit = 0; unit < added_.size(); ++unit)
        if (!added_[unit]) add_squares(unit);
    // All ranks have the same values; one of the shard group counts.
    if (plan_.mesh.position(comms_.world().rank()) != 0) return;
    const PhaseTimes::Scope timed(times_, &Phases::measure);
    const std::span<const float> replicated = shards_.replicated_gradients();
    sum_.add_squares(replicated.data(), VESCOMM_F32, replicated.size());
}

// The sum of squares is exact, so it does not depend on the cuts between ranks.
double GradientNorm::squares() {
    ExactSum sum = sum_;
    if (plan_.mesh.shard_ranks > 1) {
        vescomm_request_t *request = nullptr;
        check(vescomm_all_reduce(comms_.shard().get(), sum.words().data(), sum.words().data(),
                                 ExactSum::word_count, VESCOMM_I64, VESCOMM_SUM, nullptr, nullptr,
                                 &request));
        const std::unique_ptr<vescomm_request_t, decltype(&vescomm_request_free)> owner(
            request, vescomm_request_free);
        comms_.wait(comms_.shard(), request);
        sum.normalise();
    }
    return sum.value();
}

void GradientNorm::add_squares(std::size_t unit) {
    const PhaseTimes::Scope timed(times_, &Phases::measure);
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!plan_.buckets[bucket].trainable || plan_.buckets[bucket].replicated) continue;
        const std::span<const float> gradients = shards_.gradient(bucket);
        sum_.add_squares(gradients.data(), VESCOMM_F32, gradients.size());
    }
    added_[unit] = true;
}

}  // namespace vescomm::fsdp
