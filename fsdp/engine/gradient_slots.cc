// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gradient_slots.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "execute/kernels.h"
#include "fsdp/engine/add_gradient.h"
#include "fsdp/engine/divisors.h"
#include "fsdp/report/traffic.h"

namespace vescomm::fsdp {

namespace {

QuantisedSums::Factors quantised_factors(const Spec &spec, const Mesh &mesh) {
    if (spec.options().average == 0) return {};
    return {1.0f / static_cast<float>(mesh.shard_ranks), 1.0f / expert_divisor(spec, mesh)};
}

}  // namespace

GradientSlots::GradientSlots(const Spec &spec, const ModelPlan &plan, const Shards &shards,
                             std::span<const std::string> unit_names, Comms &comms, Watch &watch,
                             GradientNorm &norm, EventTimes &times)
    : spec_(spec),
      plan_(plan),
      shards_(shards),
      unit_names_(unit_names),
      comms_(comms),
      watch_(watch),
      norm_(norm),
      expert_divisor_(expert_divisor(spec, plan.mesh)),
      pool_(plan.gradient_slot_ranges, plan.gradient_slots.size()),
      parts_(plan.buckets.size(), 0),
      scratch_offsets_(plan.buckets.size(), 0),
      slots_(plan.gradient_slots.size()),
      transfers_(Transfer::reduce, plan.gradient_slots.size(), comms, times),
      quantised_(plan, quantised_factors(spec, plan.mesh), comms),
      writes_(spec),
      summed_(plan.of_unit.size(), false) {
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::size_t part = 0;
        std::int64_t scratch = 0;
        for (const std::size_t bucket : buckets) {
            if (!plan.buckets[bucket].trainable) continue;
            parts_[bucket] = part++;
            if (plan.buckets[bucket].sums_quantised() || plan.buckets[bucket].replicated) continue;
            scratch_offsets_[bucket] = scratch;
            scratch += align_shard(static_cast<std::int64_t>(shards.gradient(bucket).size()));
        }
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        for (const std::uint64_t bytes : plan.gradient_slot_parts[slot]) {
            slots_[slot].parts.emplace_back();
            if (bytes > 0)
                slots_[slot].parts.back() =
                    Memory(comms.shard(plan.kind_of_gradient_slot(slot)), bytes, VESCOMM_PER_RANK);
        }
}

void GradientSlots::acquire(int unit) {
    if (pool_.pins(unit) > 0) return;
    drain(slots_[open_gradient_slot(pool_, plan_, unit, unit_names_)]);
    writes_.begin(plan_, unit);
}

void *GradientSlots::data(std::size_t parameter) const {
    const ParameterPlace &at = *plan_.parameter_places[parameter];
    const Bucket &bucket = plan_.buckets[at.bucket];
    const int slot = pool_.slot_of(static_cast<int>(bucket.unit));
    if (slot == SlotPool::none) return nullptr;  // a unit without elements needs no slot
    std::byte *begin = bucket_data(slot, at.bucket);
    if (begin == nullptr) return nullptr;  // so does a bucket
    return begin + static_cast<std::size_t>(bucket.places[at.place].offset) *
                       vescomm_type_get_bytes(bucket.gradient_type);
}

vescomm_fsdp_gradient_mode_t GradientSlots::begin_write(std::size_t parameter) {
    const Parameter &one = spec_.parameters()[parameter];
    const GradientWrites::Begin begin = writes_.begin_write(parameter);
    if (begin.zeros && one.elements > 0)
        std::memset(data(parameter), 0,
                    static_cast<std::size_t>(one.elements) *
                        vescomm_type_get_bytes(spec_.gradient_type(one)));
    return begin.mode;
}

void GradientSlots::push(std::size_t parameter, const void *from, vescomm_type_t type) {
    const Parameter &one = spec_.parameters()[parameter];
    add_gradient(from, type, static_cast<std::size_t>(one.elements), writes_.written(parameter),
                 data(parameter), spec_.gradient_type(one));
    writes_.set_written(parameter);
}

void GradientSlots::fill_with_zeros(int unit, int slot) {
    for (const std::size_t index : plan_.of_unit[unit]) {
        const Bucket &bucket = plan_.buckets[index];
        if (!bucket.trainable || bucket.elements == 0) continue;
        const std::size_t size = vescomm_type_get_bytes(bucket.gradient_type);
        std::byte *data = bucket_data(slot, index);
        writes_.for_gaps(bucket, [&](std::int64_t begin, std::int64_t end) {
            std::memset(data + static_cast<std::size_t>(begin) * size, 0,
                        static_cast<std::size_t>(end - begin) * size);
        });
    }
}

void GradientSlots::send(int unit, const Announcement &announcement) {
    const int number = pool_.slot_of(unit);
    Slot &slot = slots_[number];
    fill_with_zeros(unit, number);
    // Gradient slots of one kind share slots for codes.
    if (quantised_.slot_for(number) >= 0)
        for (std::size_t other = 0; other < slots_.size(); ++other)
            if (quantised_.slot_for(static_cast<int>(other)) == quantised_.slot_for(number))
                drain(slots_[other]);
    pool_.close(unit);
    pool_.drop(unit);
    slot.sending = unit;
    slot.adds = summed_[unit];
    const int position = plan_.mesh.position(comms_.world().rank());
    transfers_.begin(number, reduce_bytes(plan_, static_cast<std::size_t>(unit), position),
                     static_cast<std::size_t>(unit));
    const auto waits = transfers_.waits(number);
    slot.announced = watch_.post(announcement);
    summed_[unit] = true;
    if (slot.adds && slot.scratch.size() == 0)
        slot.scratch =
            AlignedBytes(scratch_bytes_of_slot(plan_, static_cast<std::size_t>(number), position));
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!plan_.buckets[bucket].trainable || plan_.buckets[bucket].elements == 0) continue;
        if (plan_.buckets[bucket].replicated) {
            keep(number, bucket);
            continue;
        }
        if (plan_.buckets[bucket].sums_quantised()) {
            const int codes = quantised_.slot_for(number);
            if (quantised_.creates(codes, bucket)) watch_.verify(slot.announced);
            quantised_.start(codes, bucket, bucket_data(number, bucket));
            continue;
        }
        const Key key{number, bucket, slot.adds};
        if (!requests_.contains(key)) watch_.verify(slot.announced);
        Request &next = request(key);
        next.start();
        comms_.started(comm_of(bucket), next.get());
    }
}

Request &GradientSlots::request(const Key &key) {
    const auto found = requests_.find(key);
    if (found != requests_.end()) return found->second;
    const Bucket &bucket = plan_.buckets[key.bucket];
    Communicator &comm = comm_of(key.bucket);
    comms_.complete_others(comm);
    auto buffer = buffers_.find({key.slot, key.bucket});
    if (buffer == buffers_.end()) {
        const std::string name = "gradients of " + unit_names_[bucket.unit];
        vescomm_buffer_options_t options = vescomm_buffer_options_init();
        options.type = bucket.gradient_type;
        options.memory = slots_[key.slot].parts[parts_[key.bucket]].get();
        options.name = name.c_str();
        buffer =
            buffers_
                .emplace(std::pair(key.slot, key.bucket), Buffer(comm, bucket.layout(), options))
                .first;
    }
    vescomm_request_options_t options = vescomm_request_options_init();
    options.output =
        key.adds ? scratch_of(slots_[key.slot], key.bucket) : shards_.gradient(key.bucket).data();
    options.type = VESCOMM_F32;
    const bool average = spec_.options().average != 0 && bucket.kind() == UnitKind::dense;
    options.op = average ? VESCOMM_AVERAGE : VESCOMM_SUM;
    return requests_.emplace(key, Request::reduce_scatter_v(comm, buffer->second, options))
        .first->second;
}

Communicator &GradientSlots::comm_of(std::size_t bucket) const {
    return comms_.shard(plan_.buckets[bucket].kind());
}

bool GradientSlots::sending() const {
    return std::ranges::any_of(slots_, [](const Slot &slot) { return slot.sending >= 0; });
}

void GradientSlots::drain(Slot &slot) {
    if (slot.sending < 0) return;
    const auto number = static_cast<int>(&slot - slots_.data());
    const auto waits = transfers_.waits(number);
    watch_.verify(slot.announced);
    for (const std::size_t bucket : plan_.of_unit[slot.sending]) {
        if (!plan_.buckets[bucket].trainable || !plan_.buckets[bucket].gathered()) continue;
        if (plan_.buckets[bucket].sums_quantised()) {
            quantised_.finish(quantised_.slot_for(number), bucket, shards_.gradient(bucket).data(),
                              slot.adds);
            continue;
        }
        comms_.wait(comm_of(bucket), request({number, bucket, slot.adds}).get());
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
    // As VESCOMM_AVERAGE computes it, so that the bits do not depend on expert_ranks.
    const auto factor = static_cast<float>(1.0 / expert_divisor_);
    if (plan_.buckets[bucket].kind() == UnitKind::experts && expert_divisor_ != 1)
        for (float &sum : sums) sum *= factor;
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
    for (std::size_t unit = 0; unit < summed_.size(); ++unit) {
        if (summed_[unit]) continue;
        for (const std::size_t bucket : plan_.of_unit[unit])
            if (plan_.buckets[bucket].trainable) std::ranges::fill(shards_.gradient(bucket), 0.0f);
    }
}

void GradientSlots::keep(int slot, std::size_t bucket) const {
    const vescomm_type_t type = plan_.buckets[bucket].gradient_type;
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
    const bool average = spec_.options().average != 0;
    vescomm_request_t *request = nullptr;
    check(vescomm_all_reduce(comm.get(), gradients.data(), gradients.data(),
                             static_cast<std::int64_t>(gradients.size()), VESCOMM_F32,
                             average ? VESCOMM_AVERAGE : VESCOMM_SUM, nullptr, nullptr, &request));
    const std::unique_ptr<vescomm_request_t, decltype(&vescomm_request_free)> owner(
        request, vescomm_request_free);
    comms_.wait(comm, request);
}

void GradientSlots::begin_step() {
    summed_.assign(summed_.size(), false);
}

void GradientSlots::drop() {
    pool_.drop_pinned();
    begin_step();
}

std::byte *GradientSlots::bucket_data(int slot, std::size_t bucket) const {
    const Memory &memory = slots_[slot].parts[parts_[bucket]];
    return memory.get() == nullptr ? nullptr : static_cast<std::byte *>(memory.data());
}

// Sums in 8 bits are added where they are computed, and have no scratch.
float *GradientSlots::scratch_of(const Slot &slot, std::size_t bucket) const {
    return reinterpret_cast<float *>(slot.scratch.data()) + scratch_offsets_[bucket];
}

std::uint64_t GradientSlots::bytes() const {
    std::uint64_t bytes = quantised_.bytes();
    for (const std::uint64_t slot : plan_.gradient_slots) bytes += slot;
    return bytes;
}

std::uint64_t GradientSlots::scratch_bytes() const {
    std::uint64_t bytes = 0;
    for (const Slot &slot : slots_) bytes += slot.scratch.size();
    return bytes;
}

}  // namespace vescomm::fsdp
