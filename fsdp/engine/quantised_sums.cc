// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/quantised_sums.h"

#include <algorithm>

namespace vescomm::fsdp {

QuantisedSums::QuantisedSums(const ModelPlan &plan, const Factors &factors, Comms &comms)
    : plan_(plan),
      factors_(factors),
      comms_(comms),
      position_(plan.mesh.position(comms.world().rank())),
      sent_(plan.buckets.size(), 0),
      received_(plan.buckets.size(), 0),
      slots_(plan.sum_slots) {
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        for (const std::size_t bucket : buckets) {
            const Bucket &planned = plan.buckets[bucket];
            if (!planned.sums_quantised()) continue;
            sent_[bucket] = sent;
            received_[bucket] = received;
            sent += align_bucket(planned.codes.bytes());
            received +=
                align_bucket(planned.code_bytes(position_) *
                             static_cast<std::uint64_t>(plan.mesh.shard_ranks_of(planned.kind())));
        }
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        const UnitKind kind = plan.kind_of_sum_slot(slot);
        slots_[slot].sent = AlignedBytes(plan.sent_code_bytes(kind), plan.allocator);
        slots_[slot].received =
            AlignedBytes(plan.received_code_bytes(kind, position_), plan.allocator);
    }
    std::int64_t largest = 0;
    for (const Bucket &bucket : plan.buckets)
        for (const GatherRun &run : bucket.codes.runs) largest = std::max(largest, run.elements);
    if (slots_.empty()) return;
    sums_.resize(static_cast<std::size_t>(largest));
    sources_.resize(static_cast<std::size_t>(plan.mesh.shard_ranks));
}

void QuantisedSums::start(int slot, std::size_t bucket, const void *gradients) {
    const Bucket &planned = plan_.buckets[bucket];
    const GatherCodes &codes = planned.codes;
    std::byte *sent = slots_[slot].sent.data() + sent_[bucket];
    for (const GatherRun &run : codes.runs)
        quantise_run(run, planned.reduce_type, gradients, planned.gradient_type, run.offset,
                     sent + run.codes, sent + run.scales);
    Communicator &comm = comms_.shard(planned.kind());
    const auto found = requests_.find({slot, bucket});
    if (found != requests_.end()) {
        check(vescomm_request_start(found->second.get(), nullptr));
        return comms_.started(comm, found->second.get());
    }
    const auto own = static_cast<std::int64_t>(planned.code_bytes(position_));
    std::vector<std::int64_t> counts;
    for (int shard = 0; shard < plan_.mesh.shard_ranks_of(planned.kind()); ++shard)
        counts.push_back(static_cast<std::int64_t>(codes.bytes(shard)));
    const std::vector<std::int64_t> received(counts.size(), own);
    vescomm_request_t *made = nullptr;
    check(vescomm_all_to_all_v(comm.get(), sent, counts.data(), nullptr,
                               slots_[slot].received.data() + received_[bucket], received.data(),
                               nullptr, VESCOMM_U8, nullptr, nullptr, &made));
    requests_.emplace(std::pair(slot, bucket), RequestPointer(made));
    comms_.started(comm, made);
}

void QuantisedSums::finish(int slot, std::size_t bucket, float *to, bool add) {
    const Bucket &planned = plan_.buckets[bucket];
    const GatherCodes &codes = planned.codes;
    comms_.wait(comms_.shard(planned.kind()), requests_.at({slot, bucket}).get());
    const std::byte *received = slots_[slot].received.data() + received_[bucket];
    const int number = planned.shard_number(position_);
    const auto begin = static_cast<std::uint64_t>(codes.cuts[number]);
    const bool experts = planned.kind() == UnitKind::experts;
    const std::span sources = std::span(sources_).first(
        static_cast<std::size_t>(plan_.mesh.shard_ranks_of(planned.kind())));
    for (std::size_t i = codes.first_run[number]; i < codes.first_run[number + 1]; ++i) {
        const GatherRun &run = codes.runs[i];
        float *shard = to + (run.offset - planned.begin(position_));
        float *sum = add ? sums_.data() : shard;
        sum_run(run, planned.reduce_type, received, begin, codes.bytes(number), sources,
                experts ? factors_.experts : factors_.dense, sum);
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
