// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/code_slots.h"

#include <atomic>

#include "fsdp/engine/code_runs.h"
#include "fsdp/error.h"
#include "fsdp/spec/gather_parts.h"

namespace vescomm::fsdp {

namespace {

// At the beginning of a slab. The memory starts as zeros. A byte for each rank follows: 1 while the
// rank writes runs.
struct Counters {
    std::uint64_t claimed;  // runs that a rank of the node has begun
    std::uint64_t written;  // runs that are complete
};
static_assert(sizeof(Counters) == ModelPlan::code_rank_offset);
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic_ref<std::uint8_t>::is_always_lock_free);

}  // namespace

CodeSlots::CodeSlots(const ModelPlan &plan, const Shards &shards, const SecondaryCopies &copies,
                     std::span<const std::string> unit_names, Comms &comms)
    : plan_(plan),
      shards_(shards),
      copies_(copies),
      unit_names_(unit_names),
      comms_(comms),
      position_(plan.mesh.position(comms.world().rank())),
      offsets_(plan.buckets.size(), 0),
      own_offsets_(plan.buckets.size(), 0),
      slots_(plan.code_slots.size()) {
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::uint64_t offset = plan.code_counter_bytes;
        std::uint64_t own = 0;
        for (const std::size_t bucket : buckets) {
            offsets_[bucket] = offset;
            own_offsets_[bucket] = own;
            if (!plan.buckets[bucket].quantised()) continue;
            offset += align_bucket(plan.buckets[bucket].codes.bytes());
            own += align_bucket(plan.buckets[bucket].code_bytes(position_));
        }
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        const UnitKind kind = plan.kind_of_code_slot(slot);
        slots_[slot].codes = Memory(comms.gather(kind), plan.code_slots[slot], VESCOMM_PER_NODE);
        if (!copies.exist())
            slots_[slot].own = AlignedBytes(plan.own_code_bytes(kind, position_), plan.allocator);
    }
}

int CodeSlots::slot_for(int unit_slot) const {
    return plan_.code_slot_for(unit_slot);
}

CodeSlots::Channel &CodeSlots::channel(int slot, std::size_t bucket) {
    const auto found = channels_.find({slot, bucket});
    if (found != channels_.end()) return found->second;
    const Bucket &planned = plan_.buckets[bucket];
    const std::string name = "codes of " + unit_names_[planned.unit];
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.type = VESCOMM_U8;
    options.memory = slots_[slot].codes.get();
    options.offset_bytes = offsets_[bucket];
    options.sharing = VESCOMM_PER_NODE;
    options.name = name.c_str();
    Communicator &comm = comms_.gather(planned.kind());
    Channel made;
    made.buffer = Buffer(comm, Layout::from_counts(part_elements(plan_.mesh, planned)), options);
    vescomm_request_options_t request = vescomm_request_options_init();
    request.source =
        copies_.exist() ? copies_.part(bucket) : slots_[slot].own.data() + own_offsets_[bucket];
    request.type = VESCOMM_U8;
    made.request = Request::all_gather_v(comm, made.buffer, request);
    return channels_.emplace(std::pair(slot, bucket), std::move(made)).first->second;
}

void CodeSlots::start(int slot, std::size_t bucket) {
    if (!copies_.exist())
        quantise_shard(plan_.buckets[bucket], position_, shards_.master(bucket).data,
                       slots_[slot].own.data() + own_offsets_[bucket]);
    Request &request = channel(slot, bucket).request;
    request.start();
    comms_.started(comms_.gather(plan_.buckets[bucket].kind()), request.get());
}

void CodeSlots::finish(int slot, std::size_t unit, const Data &data) {
    std::uint64_t runs = 0;
    Buffer *buffer = nullptr;
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!plan_.buckets[bucket].quantised()) continue;
        Channel &from = channel(slot, bucket);
        comms_.wait(comms_.gather(plan_.kinds[unit]), from.request.get());
        buffer = &from.buffer;
        runs += plan_.buckets[bucket].codes.runs.size();
    }
    if (buffer == nullptr) return;
    write_parameters(slots_[slot], unit, data);
    slots_[slot].runs += runs;
    buffer->release();  // it applies to the memory, and so to all buckets
}

void CodeSlots::write_parameters(const Slot &slot, std::size_t unit, const Data &data) {
    auto *slab = static_cast<std::byte *>(slot.codes.data());
    auto &counters = *reinterpret_cast<Counters *>(slab);
    const std::atomic_ref claimed(counters.claimed);
    const std::atomic_ref written(counters.written);
    auto *ranks = reinterpret_cast<std::uint8_t *>(slab) + ModelPlan::code_rank_offset;
    const UnitKind kind = plan_.kinds[unit];
    const std::atomic_ref writing(ranks[plan_.mesh.part(position_, kind)]);
    writing.store(1, std::memory_order_relaxed);
    std::uint64_t end = slot.runs;  // all ranks have written the units before
    for (const std::size_t index : plan_.of_unit[unit]) {
        const Bucket &bucket = plan_.buckets[index];
        if (!bucket.quantised()) continue;
        const std::uint64_t begin = end;
        end += bucket.codes.runs.size();
        const std::byte *codes = slab + offsets_[index];
        void *to = data(index);
        for (std::uint64_t next = claimed.load(std::memory_order_acquire); next < end;) {
            if (!claimed.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel)) continue;
            const GatherRun &run = bucket.codes.runs[next - begin];
            dequantise_run(run, bucket.gather_type, codes + run.codes, codes + run.scales, to,
                           bucket.type);
            written.fetch_add(1, std::memory_order_acq_rel);
            next = claimed.load(std::memory_order_acquire);
        }
    }
    writing.store(0, std::memory_order_relaxed);
    // Other ranks are writing the last runs.
    comms_.wait_until([&] { return written.load(std::memory_order_acquire) >= end; },
                      [&] {
                          return fmt::format("{} did not finish to convert unit \"{}\" in time",
                                             name_writers(ranks, kind), unit_names_[unit]);
                      });
}

std::string CodeSlots::name_writers(std::uint8_t *ranks, UnitKind kind) const {
    std::string list;
    const Mesh &mesh = plan_.mesh;
    for (int part = 0; part < mesh.gather_ranks_of(kind); ++part)
        if (std::atomic_ref(ranks[part]).load(std::memory_order_relaxed) != 0)
            list += (list.empty() ? "rank " : ", rank ") +
                    std::to_string(mesh.rank_of_part(comms_.world().rank(), part, kind));
    return list.empty() ? "a rank of this node" : list;
}

std::uint64_t CodeSlots::bytes() const {
    std::uint64_t bytes = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        bytes += plan_.code_slots[slot] + slots_[slot].own.size();
    return bytes;
}

}  // namespace vescomm::fsdp
