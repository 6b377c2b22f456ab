// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gradient_slots.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "execute/kernels.h"
#include "fsdp/engine/add_gradient.h"
#include "fsdp/engine/divisors.h"
#include "fsdp/report/partial_sums.h"
#include "fsdp/report/traffic.h"

namespace vescomm::fsdp {

GradientSlots::Places::Places(const ModelPlan &plan, const Shards &shards)
    : parts(plan.buckets.size(), 0), scratch(plan.buckets.size(), 0) {
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::size_t part = 0;
        std::int64_t elements = 0;
        for (const std::size_t bucket : buckets) {
            if (!plan.buckets[bucket].trainable) continue;
            parts[bucket] = part++;
            if (plan.buckets[bucket].sums_quantised() || plan.buckets[bucket].replicated) continue;
            scratch[bucket] = elements;
            elements += align_shard(static_cast<std::int64_t>(shards.gradient(bucket).size()));
        }
    }
}

GradientSlots::GradientSlots(const Model &model, const Shards &shards, Comms &comms, Watch &watch,
                             GradientNorm &norm, EventTimes &times)
    : model_(model),
      shards_(shards),
      comms_(comms),
      watch_(watch),
      norm_(norm),
      units_(model),
      places_(model.plan, shards),
      slots_(model.plan.gradient_slots.size()),
      transfers_(Transfer::reduce, model.plan.gradient_slots.size(), comms, times),
      requests_(model, comms),
      quantised_(model.plan,
                 {quantised_factor(model.spec, model.plan.mesh, UnitKind::dense),
                  quantised_factor(model.spec, model.plan.mesh, UnitKind::experts)},
                 comms) {
    const ModelPlan &plan = model.plan;
    const bool experts = plan.dense_gradient_slots < slots_.size();
    const auto partial_sums =
        partial_sum_bytes(plan, {comms.shard().get()},
                          {comms.shard(experts ? UnitKind::experts : UnitKind::dense).get()});
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        for (const std::uint64_t bytes : plan.gradient_slot_parts[slot]) {
            const std::uint64_t partial = partial_sums[slot][slots_[slot].parts.size()];
            slots_[slot].parts.emplace_back();
            if (bytes > 0)
                slots_[slot].parts.back() = Memory(comms.shard(plan.kind_of_gradient_slot(slot)),
                                                   bytes, VESCOMM_PER_RANK, partial);
        }
}

void GradientSlots::acquire(int unit) {
    if (!units_.is_open(unit)) drain(slots_[units_.open(unit)]);
}

void *GradientSlots::data(std::size_t parameter) const {
    const int slot = units_.slot_for(parameter);
    if (slot == SlotPool::none) return nullptr;  // a unit without elements needs no slot
    std::byte *begin = bucket_data(slot, model_.plan.parameter_places[parameter]->bucket);
    return begin == nullptr ? nullptr : begin + units_.offset_of(parameter);  // so does a bucket
}

vescomm_fsdp_gradient_mode_t GradientSlots::begin_write(std::size_t parameter) {
    const Parameter &one = model_.spec.parameters()[parameter];
    const GradientWrites::Begin begin = units_.writes().begin_write(parameter);
    if (begin.zeros && one.elements > 0)
        std::memset(data(parameter), 0,
                    static_cast<std::size_t>(one.elements) *
                        vescomm_type_get_bytes(model_.spec.gradient_type(one)));
    return begin.mode;
}

void GradientSlots::push(std::size_t parameter, const void *from, vescomm_type_t type) {
    const Parameter &one = model_.spec.parameters()[parameter];
    add_gradient(from, type, static_cast<std::size_t>(one.elements),
                 units_.writes().written(parameter), data(parameter),
                 model_.spec.gradient_type(one));
    units_.writes().set_written(parameter);
}

void GradientSlots::fill_with_zeros(int unit, int slot) {
    for (const std::size_t index : model_.plan.of_unit[unit]) {
        const Bucket &bucket = model_.plan.buckets[index];
        if (!bucket.trainable || bucket.elements == 0) continue;
        const std::size_t size = vescomm_type_get_bytes(bucket.gradient_type);
        std::byte *data = bucket_data(slot, index);
        units_.writes().for_gaps(bucket, [&](std::int64_t begin, std::int64_t end) {
            std::memset(data + static_cast<std::size_t>(begin) * size, 0,
                        static_cast<std::size_t>(end - begin) * size);
        });
    }
}

void GradientSlots::send(int unit, const Announcement &announcement) {
    const int number = units_.slot_of(unit);
    Slot &slot = slots_[number];
    fill_with_zeros(unit, number);
    // Gradient slots of one kind share slots for codes.
    if (quantised_.slot_for(number) >= 0)
        for (std::size_t other = 0; other < slots_.size(); ++other)
            if (quantised_.slot_for(static_cast<int>(other)) == quantised_.slot_for(number))
                drain(slots_[other]);
    slot.sending = unit;
    slot.adds = units_.close(unit);
    const int position = model_.plan.mesh.position(comms_.world().rank());
    transfers_.begin(number, reduce_bytes(model_.plan, static_cast<std::size_t>(unit), position),
                     static_cast<std::size_t>(unit));
    const auto waits = transfers_.waits(number);
    slot.announced = watch_.post(announcement);
    if (slot.adds && slot.scratch.size() == 0)
        slot.scratch = AlignedBytes(
            scratch_bytes_of_slot(model_.plan, static_cast<std::size_t>(number), position),
            model_.plan.allocator);
    for (const std::size_t bucket : model_.plan.of_unit[unit])
        if (model_.plan.buckets[bucket].trainable && model_.plan.buckets[bucket].elements > 0)
            start_sum(number, bucket);
}

void GradientSlots::start_sum(int number, std::size_t bucket) {
    Slot &slot = slots_[number];
    if (model_.plan.buckets[bucket].replicated) return keep(number, bucket);
    if (model_.plan.buckets[bucket].sums_quantised()) {
        const int codes = quantised_.slot_for(number);
        if (quantised_.creates(codes, bucket)) watch_.verify(slot.announced);
        return quantised_.start(codes, bucket, bucket_data(number, bucket));
    }
    const GradientRequests::Key key{number, bucket, slot.adds};
    if (!requests_.contains(key)) {
        watch_.verify(slot.announced);
        requests_.make(key, slot.parts[places_.parts[bucket]].get(),
                       slot.adds ? scratch_of(slot, bucket) : shards_.gradient(bucket).data());
    }
    Request &next = requests_.at(key);
    next.start();
    comms_.started(comm_of(bucket), next.get());
}

Communicator &GradientSlots::comm_of(std::size_t bucket) const {
    return comms_.shard(model_.plan.buckets[bucket].kind());
}

bool GradientSlots::sending() const {
    return std::ranges::any_of(slots_, [](const Slot &slot) { return slot.sending >= 0; });
}

void GradientSlots::drain(Slot &slot) {
    if (slot.sending < 0) return;
    const auto number = static_cast<int>(&slot - slots_.data());
    const auto waits = transfers_.waits(number);
    watch_.verify(slot.announced);
    for (const std::size_t bucket : model_.plan.of_unit[slot.sending]) {
        if (!model_.plan.buckets[bucket].trainable || !model_.plan.buckets[bucket].gathered())
            continue;
        if (model_.plan.buckets[bucket].sums_quantised()) {
            quantised_.finish(quantised_.slot_for(number), bucket, shards_.gradient(bucket).data(),
                              slot.adds);
            continue;
        }
        comms_.wait(comm_of(bucket), requests_.at({number, bucket, slot.adds}).get());
        finish_sum(slot, bucket);
    }
    transfers_.end(number);
    norm_.add(static_cast<std::size_t>(slot.sending));
    slot.sending = -1;
}

void GradientSlots::finish_sum(const Slot &slot, std::size_t bucket) const {
    const std::span<float> shard = shards_.gradient(bucket);
    const std::span<float> sums =
        slot.adds ? std::span(scratch_of(slot, bucket), shard.size()) : shard;
    if (model_.plan.buckets[bucket].kind() == UnitKind::experts) {
        // As VESCOMM_AVERAGE computes it, so that the bits do not depend on expert_ranks.
        const auto factor = static_cast<float>(1.0 / expert_divisor(model_.spec, model_.plan.mesh));
        if (factor != 1)
            for (float &sum : sums) sum *= factor;
    }
    if (!slot.adds) return;
    for (std::size_t i = 0; i < shard.size(); ++i) shard[i] += sums[i];
}

void GradientSlots::finish(bool last) {
    // In the order of the announcements, which is the same on every rank.
    std::vector<Slot *> sending;
    for (Slot &slot : slots_)
        if (slot.sending >= 0) sending.push_back(&slot);
    std::ranges::sort(sending, {}, [](const Slot *slot) { return slot->announced; });
    for (Slot *slot : sending) drain(*slot);
    if (!last) return;
    units_.for_unsummed(
        [&](std::size_t bucket) { std::ranges::fill(shards_.gradient(bucket), 0.0f); });
}

void GradientSlots::keep(int slot, std::size_t bucket) const {
    const vescomm_type_t type = model_.plan.buckets[bucket].gradient_type;
    const void *own = bucket_data(slot, bucket);
    const std::span<float> kept = shards_.gradient(bucket);
    const internal::Kernels &kernels = internal::kernels();
    if (!slots_[static_cast<std::size_t>(slot)].adds)
        return kernels.convert(kept.data(), VESCOMM_F32, own, type, kept.size());
    const void *sources[] = {own};
    const void *sums[] = {kept.data()};
    kernels.reduce({}, sources, type, sums, kept.data(), VESCOMM_F32, kept.size());
}

void GradientSlots::sum_over_replicas() {
    all_reduce(comms_.replica(), shards_.sharded_gradients());
}

void GradientSlots::sum_replicated() {
    all_reduce(comms_.world(), shards_.replicated_gradients());
}

void GradientSlots::all_reduce(Communicator &comm, std::span<float> gradients) const {
    if (gradients.empty()) return;
    const bool average = model_.spec.options().average != 0;
    vescomm_request_t *request = nullptr;
    check(vescomm_all_reduce(comm.get(), gradients.data(), gradients.data(),
                             static_cast<std::int64_t>(gradients.size()), VESCOMM_F32,
                             average ? VESCOMM_AVERAGE : VESCOMM_SUM, nullptr, nullptr, &request));
    const std::unique_ptr<vescomm_request_t, decltype(&vescomm_request_free)> owner(
        request, vescomm_request_free);
    comms_.wait(comm, request);
}

void GradientSlots::begin_step() {
    units_.begin_step();
}

void GradientSlots::drop() {
    units_.drop();
}

std::byte *GradientSlots::bucket_data(int slot, std::size_t bucket) const {
    const Memory &memory = slots_[slot].parts[places_.parts[bucket]];
    return memory.get() == nullptr ? nullptr : static_cast<std::byte *>(memory.data());
}

// Sums in 8 bits are added where they are computed, and have no scratch.
float *GradientSlots::scratch_of(const Slot &slot, std::size_t bucket) const {
    return reinterpret_cast<float *>(slot.scratch.data()) + places_.scratch[bucket];
}

std::uint64_t GradientSlots::bytes() const {
    std::uint64_t bytes = quantised_.bytes();
    for (const std::uint64_t slot : model_.plan.gradient_slots) bytes += slot;
    for (const Slot &slot : slots_)
        for (const Memory &part : slot.parts)
            if (part.get() != nullptr) bytes += part.partial_bytes();
    return bytes;
}

std::uint64_t GradientSlots::scratch_bytes() const {
    std::uint64_t bytes = 0;
    for (const Slot &slot : slots_) bytes += slot.scratch.size();
    return bytes;
}

}  // namespace vescomm::fsdp
