// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/secondary_copies.h"

#include "execute/kernels.h"
#include "fsdp/engine/code_runs.h"
#include "fsdp/error.h"
#include "fsdp/spec/gather_parts.h"

namespace vescomm::fsdp {

SecondaryCopies::SecondaryCopies(const ModelPlan &plan, const Shards &shards, Comms &comms)
    : plan_(plan),
      shards_(shards),
      comms_(comms),
      position_(plan.mesh.position(comms.world().rank())),
      offsets_(plan.buckets.size(), 0),
      converted_offsets_(plan.buckets.size(), 0),
      states_(plan.of_unit.size(), State::stale),
      slots_(plan.of_unit.size(), 0) {
    if (!exist()) return;
    std::uint64_t end = 0;
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::uint64_t converted = 0;
        for (const std::size_t index : buckets) {
            const Bucket &bucket = plan.buckets[index];
            offsets_[index] = end;
            end += align_bucket(part_bytes(plan.mesh, bucket, position_));
            converted_offsets_[index] = converted;
            if (is_converted(bucket))
                converted +=
                    align_bucket(static_cast<std::uint64_t>(transfer_elements(bucket, position_)) *
                                 transfer_bytes(bucket));
        }
    }
    parts_ = AlignedBytes(end, plan.allocator);
    for (std::size_t slot = 0; slot < plan.slots.size(); ++slot)
        converted_.emplace_back(converted_bytes(plan, slot, position_), plan.allocator);
}

int SecondaryCopies::source_slot(int slot, std::size_t bucket) const {
    return is_converted(plan_.buckets[bucket]) ? slot : 0;
}

bool SecondaryCopies::creates(int unit, int slot) const {
    for (const std::size_t bucket : plan_.of_unit[unit])
        if (plan_.buckets[bucket].gathered() &&
            !requests_.contains({source_slot(slot, bucket), bucket}))
            return true;
    return false;
}

void SecondaryCopies::convert(std::size_t bucket, std::byte *to) const {
    const Bucket &planned = plan_.buckets[bucket];
    const Masters masters = shards_.master(bucket);
    if (planned.quantised()) return quantise_shard(planned, position_, masters.data, to);
    internal::kernels().convert(to, planned.type, masters.data, masters.type, masters.size);
}

void SecondaryCopies::start(std::size_t index, int slot) {
    const Bucket &bucket = plan_.buckets[index];
    const void *source = shards_.master(index).data;
    if (is_converted(bucket)) {
        std::byte *converted = converted_[slot].data() + converted_offsets_[index];
        convert(index, converted);
        source = converted;
    }
    const std::pair key(source_slot(slot, index), index);
    if (const auto found = requests_.find(key); found != requests_.end())
        return check(vescomm_request_start(found->second.get(), nullptr));
    // Each group gets the whole shard, in the part that has it.
    const Mesh &mesh = plan_.mesh;
    std::vector<std::int64_t> given, taken;
    for (int other = 0; other < mesh.shard_ranks; ++other) {
        given.push_back(mesh.part_has(other, position_) ? transfer_elements(bucket, position_) : 0);
        taken.push_back(mesh.part_has(position_, other) ? transfer_elements(bucket, other) : 0);
    }
    const std::vector<std::int64_t> same_place(given.size(), 0);
    vescomm_request_t *made = nullptr;
    check(vescomm_all_to_all_v(
        comms_.shard().get(), source, given.data(), same_place.data(), part(index), taken.data(),
        nullptr, bucket.quantised() ? VESCOMM_U8 : bucket.type, nullptr, nullptr, &made));
    requests_.emplace(key, RequestPointer(made));
}

void SecondaryCopies::fill(int unit, int slot) {
    states_[unit] = State::filling;
    slots_[unit] = slot;
    for (const std::size_t bucket : plan_.of_unit[unit])
        if (plan_.buckets[bucket].gathered()) start(bucket, slot);
}

template <typename Body>
void SecondaryCopies::for_requests(int unit, Body &&body) {
    for (const std::size_t bucket : plan_.of_unit[unit])
        if (plan_.buckets[bucket].gathered())
            body(requests_.at({source_slot(slots_[unit], bucket), bucket}).get());
}

bool SecondaryCopies::filled(int unit) {
    if (!exist() || states_[unit] == State::filled) return true;
    bool all = true;
    for_requests(unit, [&](vescomm_request_t *request) {
        const vescomm_status_t status = vescomm_request_test(request);
        check(status);
        all = all && status == VESCOMM_OK;
    });
    if (all) states_[unit] = State::filled;
    return all;
}

void SecondaryCopies::await(int unit) {
    if (!exist() || states_[unit] == State::filled) return;
    for_requests(unit, [&](vescomm_request_t *request) { comms_.wait(comms_.shard(), request); });
    states_[unit] = State::filled;
}

std::uint64_t SecondaryCopies::bytes() const {
    std::uint64_t bytes = parts_.size();
    for (const AlignedBytes &converted : converted_) bytes += converted.size();
    return bytes;
}

}  // namespace vescomm::fsdp
