// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/quantised_sums.h"

#include <algorithm>

namespace vescomm::fsdp {

QuantisedSums::QuantisedSums(const ModelPlan &plan, bool average, Comms &comms)
    : plan_(plan),
      factor_(average ? 1.0f / static_cast<float>(plan.mesh.shard_ranks) : 1.0f),
      comms_(comms),
      position_(plan.mesh.position(comms.world().rank())),
      sent_(plan.buckets.size(), 0),
      received_(plan.buckets.size(), 0),
      slots_(plan.sum_slots) {
    const auto ranks = static_cast<std::uint64_t>(plan.mesh.shard_ranks);
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        for (const std::size_t bucket : buckets) {
            if (!plan.buckets[bucket].sums_quantised()) continue;
            sent_[bucket] = sent;
            received_[bucket] = received;
            sent += align_bucket(plan.buckets[bucket].codes.bytes());
            received += align_bucket(plan.buckets[bucket].codes.bytes(position_) * ranks);
        }
    }
    for (Slot &slot : slots_) {
        slot.sent = AlignedBytes(plan.sent_code_bytes());
        slot.received = AlignedBytes(plan.received_code_bytes(position_));
    }
    std::int64_t largest = 0;
    for (const Bucket &bucket : plan.buckets)
        for (const GatherRun &run : bucket.codes.runs) largest = std::max(largest, run.elements);
    if (slots_.empty()) return;
    sums_.resize(static_cast<std::size_t>(largest));
    sources_.resize(static_cast<std::size_t>(ranks));
}

int QuantisedSums::slot_for(int gradient_slot) const {
    return gradient_slot % static_cast<int>(slots_.size());
}

void QuantisedSums::start(int slot, std::size_t bucket, const void *gradients) {
    const Bucket &planned = plan_.buckets[bucket];
    const GatherCodes &codes = planned.codes;
    std::byte *sent = slots_[slot].sent.data() + sent_[bucket];
    for (const GatherRun &run : codes.runs)
        quantise_run(run, planned.reduce_type, gradients, planned.gradient_type, run.offset,
                     sent + run.codes, sent + run.scales);
    const auto found = requests_.find({slot, bucket});
    if (found != requests_.end()) return check(vescomm_request_start(found->second.get(), nullptr));
    const auto own = static_cast<std::int64_t>(codes.bytes(position_));
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < plan_.mesh.shard_ranks; ++rank)
        counts.push_back(static_cast<std::int64_t>(codes.bytes(rank)));
    const std::vector<std::int64_t> received(counts.size(), own);
    vescomm_request_t *made = nullptr;
    check(vescomm_all_to_all_v(comms_.shard().get(), sent, counts.data(), nullptr,
                               slots_[slot].received.data() + received_[bucket], received.data(),
                               nullptr, VESCOMM_U8, nullptr, nullptr, &made));
    requests_.emplace(std::pair(slot, bucket), RequestPointer(made));
}

void QuantisedSums::finish(int slot, std::size_t bucket, float *to, bool add) {
    const Bucket &planned = plan_.buckets[bucket];
    const GatherCodes &codes = planned.codes;
    comms_.wait(comms_.shard(), requests_.at({slot, bucket}).get());
    const std::byte *received = slots_[slot].received.data() + received_[bucket];
    const auto begin = static_cast<std::uint64_t>(codes.cuts[position_]);
    for (std::size_t i = codes.first_run[position_]; i < codes.first_run[position_ + 1]; ++i) {
        const GatherRun &run = codes.runs[i];
        float *shard = to + (run.offset - planned.cuts[position_]);
        float *sum = add ? sums_.data() : shard;
        sum_run(run, planned.reduce_type, received, begin, codes.bytes(position_), sources_,
                factor_, sum);
        if (!add) continue;
        for (std::int64_t e = 0; e < run.elements; ++e) shard[e] += sum[e];
    }
}

std::uint64_t QuantisedSums::bytes() const {
    std::uint64_t bytes = 0;
    for (const Slot &slot : slots_) bytes += slot.sent.size() + slot.received.size();
    return bytes;
}

}  // namespace vescomm::fsdp
