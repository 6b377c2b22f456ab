// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/traffic.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "fsdp/engine/narrow_masters.h"
#include "fsdp/engine/prefetch.h"
#include "fsdp/error.h"
#include "fsdp/report/device_memory.h"
#include "fsdp/report/partial_sums.h"
#include "fsdp/report/phases.h"
#include "fsdp/spec/gather_parts.h"
#include "fsdp/spec/partners.h"

namespace vescomm::fsdp {

namespace {

// Memory of the shards of a rank.
struct Persistent {
    std::int64_t elements = 0;
    std::uint64_t master = 0, gradient = 0, optimizer = 0;

    std::uint64_t total() const { return master + gradient + optimizer; }
};

Persistent persistent_of(const ModelPlan &plan, int position) {
    Persistent sum;
    for (const Bucket &bucket : plan.buckets) {
        const std::int64_t elements = bucket.shard(position);
        const auto aligned = static_cast<std::uint64_t>(align_shard(elements));
        sum.elements += elements;
        sum.master += aligned * vescomm_type_get_bytes(bucket.master_type);
        if (!bucket.trainable) continue;
        sum.gradient += aligned * sizeof(float);
        for (std::size_t state = 0; state < bucket.states.size(); ++state)
            sum.optimizer +=
                static_cast<std::uint64_t>(align_shard(bucket.state_elements(state, position))) *
                bucket.states[state].bytes();
    }
    return sum;
}

std::uint64_t sum_over_units(const ModelPlan &plan, const std::vector<std::uint64_t> &times,
                             int position,
                             std::uint64_t (*bytes)(const ModelPlan &, std::size_t, int)) {
    std::uint64_t sum = 0;
    for (std::size_t unit = 0; unit < times.size(); ++unit)
        sum += times[unit] * bytes(plan, unit, position);
    return sum;
}

std::uint64_t total(const std::vector<std::uint64_t> &sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
}

// Slots for codes of gradients.
std::uint64_t sum_code_bytes(const ModelPlan &plan, int position) {
    std::uint64_t bytes = 0;
    for (std::size_t slot = 0; slot < plan.sum_slots; ++slot) {
        const UnitKind kind = plan.kind_of_sum_slot(slot);
        bytes += plan.sent_code_bytes(kind) + plan.received_code_bytes(kind, position);
    }
    return bytes;
}

std::uint64_t replicated_bytes(const ModelPlan &plan) {
    std::uint64_t bytes = 0;
    for (const Bucket &bucket : plan.buckets) {
        std::uint64_t per_element = vescomm_type_get_bytes(bucket.master_type);
        if (bucket.type != bucket.master_type) per_element += vescomm_type_get_bytes(bucket.type);
        if (bucket.trainable) per_element += sizeof(float);
        std::uint64_t per_block = 0;
        for (const StateType &state : bucket.states)
            (state.per_block ? per_block : per_element) += state.bytes();
        for (const Place &place : bucket.places)
            bytes += static_cast<std::uint64_t>(bucket.expert_ranks) * per_block *
                     static_cast<std::uint64_t>(
                         blocks_before(place.elements, place.rows * place.columns, place.block));
        bytes += static_cast<std::uint64_t>(bucket.elements - bucket.padding) *
                 static_cast<std::uint64_t>(bucket.expert_ranks) * per_element;
    }
    return bytes;
}

}  // namespace

vescomm_fsdp_order_t predicted_order(const Spec &spec) {
    return spec.options().order == VESCOMM_FSDP_EXPLICIT ? VESCOMM_FSDP_EXPLICIT
                                                         : VESCOMM_FSDP_DECLARED;
}

std::vector<std::uint64_t> gathers_per_step(const Spec &spec, const ModelPlan &plan,
                                            int micro_batches) {
    const auto units = static_cast<int>(spec.units().size());
    SlotPool pool(plan.slot_ranges, plan.slots.size());
    Order order(predicted_order(spec), units);
    std::vector<std::uint64_t> gathers(units, 0);
    const auto count = [&](int unit, const SlotPool::Opened &) { ++gathers[unit]; };
    const auto use = [&](int unit, bool backward) {
        order.opened(unit, backward);
        const std::vector<int> soon = needed_soon(order, plan);
        for (const std::size_t owner : plan.needs[unit]) {
            const auto opened = pool.open(static_cast<int>(owner), soon);
            if (opened.gather) count(static_cast<int>(owner), opened);
        }
        prefetch(pool, soon, count);
        for (const std::size_t owner : plan.needs[unit])
            close(pool, plan, static_cast<int>(owner), soon);
    };
    // Micro-batches repeat: from a state of the slots that was seen before on, they need not be
    // simulated again.
    struct Seen {
        int batch;
        std::vector<std::uint64_t> gathers;
    };
    std::map<std::vector<std::pair<int, int>>, Seen> seen;
    for (int batch = 0; batch < micro_batches; ++batch) {
        const auto [before, is_new] = seen.try_emplace(pool.by_last_use(), Seen{batch, gathers});
        if (!is_new) {
            const int period = batch - before->second.batch;
            const int periods = (micro_batches - batch) / period;
            for (int unit = 0; unit < units; ++unit)
                gathers[unit] += (gathers[unit] - before->second.gathers[unit]) *
                                 static_cast<std::uint64_t>(periods);
            batch += periods * period;
            if (batch == micro_batches) break;
            seen.clear();
        }
        order.begin(false);
        for (int unit = 0; unit < units; ++unit) use(unit, false);
        for (int unit = units; unit-- > 0;) use(unit, true);
    }
    return gathers;
}

std::uint64_t parameter_code_bytes(const ModelPlan &plan, int position) {
    std::uint64_t bytes = total(plan.code_slots);
    if (plan.mesh.secondary_ranks > 0) return bytes;
    for (std::size_t slot = 0; slot < plan.code_slots.size(); ++slot)
        bytes += plan.own_code_bytes(plan.kind_of_code_slot(slot), position);
    return bytes;
}

std::uint64_t gradient_shard_bytes(const ModelPlan &plan, int position) {
    return persistent_of(plan, position).gradient;
}

std::uint64_t replicated_gradient_bytes(const ModelPlan &plan) {
    std::uint64_t bytes = 0;
    for (const Bucket &bucket : plan.buckets)
        if (bucket.replicated && bucket.trainable)
            bytes += static_cast<std::uint64_t>(align_shard(bucket.elements)) * sizeof(float);
    return bytes;
}

std::uint64_t gather_bytes(const ModelPlan &plan, std::size_t unit, int position) {
    std::uint64_t bytes = 0;
    for (const std::size_t index : plan.of_unit[unit]) {
        const Bucket &bucket = plan.buckets[index];
        if (bucket.replicated) continue;
        bytes += (bucket.quantised() ? bucket.codes.bytes() : bucket.parameter_bytes()) -
                 part_bytes(plan.mesh, bucket, position);
    }
    return bytes;
}

std::uint64_t group_gather_bytes(const ModelPlan &plan, std::size_t unit, int position) {
    return plan.mesh.secondary_ranks > 0 ? gather_bytes(plan, unit, position) : 0;
}

std::uint64_t fill_bytes(const ModelPlan &plan, std::size_t unit, int position) {
    if (plan.mesh.secondary_ranks == 0) return 0;
    std::uint64_t bytes = 0;
    for (const std::size_t index : plan.of_unit[unit]) {
        const Bucket &bucket = plan.buckets[index];
        bytes += part_bytes(plan.mesh, bucket, position);
        if (plan.mesh.part_has(position, position))
            bytes -= static_cast<std::uint64_t>(transfer_elements(bucket, position)) *
                     transfer_bytes(bucket);
    }
    return bytes;
}

std::uint64_t reduce_bytes(const ModelPlan &plan, std::size_t unit, int position) {
    std::uint64_t bytes = 0;
    for (const std::size_t index : plan.of_unit[unit]) {
        const Bucket &bucket = plan.buckets[index];
        if (!bucket.trainable || bucket.replicated) continue;
        if (bucket.sums_quantised()) {
            bytes += bucket.codes.bytes() - bucket.code_bytes(position);
            continue;
        }
        bytes += static_cast<std::uint64_t>(bucket.elements - bucket.shard(position)) *
                 vescomm_type_get_bytes(bucket.gradient_type);
    }
    return bytes;
}

std::uint64_t replica_bytes(const ModelPlan &plan, int position) {
    const std::uint64_t replicated = replicated_gradient_bytes(plan);
    const std::uint64_t sharded = gradient_shard_bytes(plan, position) - replicated;
    return replicated + (plan.mesh.replicas() > 1 ? sharded : 0);
}

std::uint64_t scratch_bytes_of_slot(const ModelPlan &plan, std::size_t slot, int position) {
    const std::size_t units = plan.of_unit.size();
    std::uint64_t largest = 0;
    for (std::size_t unit = 0; unit < units; ++unit)
        if (plan.gradient_slot_ranges[unit].has(static_cast<int>(slot)))
            largest = std::max(largest, scratch_bytes(plan, unit, position));
    return largest;
}

std::uint64_t scratch_bytes(const ModelPlan &plan, std::size_t unit, int position) {
    std::uint64_t bytes = 0;
    for (const std::size_t index : plan.of_unit[unit])
        // Sums in 8 bits, and those of replicated parameters, are added where they are computed.
        if (plan.buckets[index].trainable && !plan.buckets[index].sums_quantised() &&
            !plan.buckets[index].replicated)
            bytes += static_cast<std::uint64_t>(align_shard(plan.buckets[index].shard(position))) *
                     sizeof(float);
    return bytes;
}

namespace {

// The parts of a report that are the same for all ranks.
struct Facts {
    std::vector<std::uint64_t> dense_copies;
    int copy_distance = 0;  // from a rank to the one that holds its copy; 0: no partner copies
    PredictedPartialSums *partial_sums = nullptr;  // nullptr: none
    const DeviceMemory *device = nullptr;  // nullptr: host memory
};

// The rank of which another one has a copy.
int copied_rank(const ModelPlan &plan, const Facts &facts, int rank) {
    return (rank + plan.mesh.ranks - facts.copy_distance) % plan.mesh.ranks;
}

// The copy of another rank's masters and states; empty without partner copies.
Persistent partner_copy(const ModelPlan &plan, const Facts &facts, int rank) {
    if (facts.copy_distance == 0) return {};
    return persistent_of(plan, plan.mesh.position(copied_rank(plan, facts, rank)));
}

std::uint64_t widened_bytes(const Spec &spec, const ModelPlan &plan, int position) {
    return static_cast<std::uint64_t>(heap_elements(spec, plan, position)) * sizeof(float);
}

// The memory beside shards, their copies and replicated parameters.
void set_slots(vescomm_fsdp_report_t &report, const ModelPlan &plan, const Facts &facts,
               int position) {
    report.slot_bytes = total(plan.slots) + total(plan.quantised_slots);
    report.code_bytes = parameter_code_bytes(plan, position) + sum_code_bytes(plan, position);
    report.secondary_bytes = secondary_bytes(plan, facts.dense_copies, position);
    report.gradient_slot_bytes = total(plan.gradient_slots);
    // Sums after the first of a step do not go directly into the gradient shard.
    if (report.micro_batches > 1 && !plan.mesh.keep_gradients)
        for (std::size_t slot = 0; slot < plan.gradient_slots.size(); ++slot)
            report.scratch_bytes += scratch_bytes_of_slot(plan, slot, position);
    if (facts.partial_sums != nullptr)
        report.partial_sum_bytes = facts.partial_sums->bytes(report.rank);
}

// The same on device memory. NCCL sums there.
void set_slots_on_device(vescomm_fsdp_report_t &report, const ModelPlan &plan, const Facts &facts,
                         int position) {
    report.slot_bytes = facts.device->slots;
    report.code_bytes = facts.device->codes + facts.device->sum_codes(position);
    report.secondary_bytes = copy_bytes(plan, facts.dense_copies, position);
    report.gradient_slot_bytes = facts.device->gradient_slots;
    report.scratch_bytes = facts.device->scratch(position);
    report.staged_bytes = facts.device->staged(position);
    report.device_bytes = report.slot_bytes + report.code_bytes + report.secondary_bytes +
                          report.gradient_slot_bytes + report.scratch_bytes +
                          report.converted_bytes +
                          (facts.device->has_shards() ? report.persistent_bytes : 0);
}

// The part of partner_bytes that holds gradients: of the copied rank, and those of a device that
// are sent.
std::uint64_t partner_gradient_bytes(const vescomm_fsdp_report_t &report, const ModelPlan &plan,
                                     const Facts &facts) {
    if (facts.copy_distance == 0) return 0;
    const bool staged = facts.device != nullptr && facts.device->has_shards();
    return partner_copy(plan, facts, report.rank).gradient + (staged ? report.gradient_bytes : 0);
}

// The members that count memory of report.rank, but for the phases.
void set_memory(vescomm_fsdp_report_t &report, const Spec &spec, const ModelPlan &plan,
                const Facts &facts) {
    const Mesh &mesh = plan.mesh;
    const int position = mesh.position(report.rank);
    const Persistent persistent = persistent_of(plan, position);
    report.shard_elements = persistent.elements;
    report.master_bytes = persistent.master;
    report.gradient_bytes = persistent.gradient;
    report.optimizer_bytes = persistent.optimizer;
    report.persistent_bytes = persistent.total();
    for (const Bucket &bucket : plan.buckets)
        report.converted_bytes += align_bucket(bucket.converted_bytes());
    if (facts.device != nullptr) set_slots_on_device(report, plan, facts, position);
    else set_slots(report, plan, facts, position);

    const Persistent copy = partner_copy(plan, facts, report.rank);
    report.partner_bytes =
        copy.master + copy.optimizer + partner_gradient_bytes(report, plan, facts);
    if (facts.device == nullptr || !facts.device->has_shards())
        report.widened_bytes = widened_bytes(spec, plan, position);
    if (facts.copy_distance > 0)
        report.widened_bytes +=
            widened_bytes(spec, plan, mesh.position(copied_rank(plan, facts, report.rank)));
    if (facts.copy_distance > 0) report.partner_bytes_per_step = persistent.gradient;
    if (!spec.offload_folder().empty())
        report.file_bytes = persistent.master + persistent.optimizer + copy.master + copy.optimizer;
    report.peak_bytes = report.persistent_bytes + report.slot_bytes + report.code_bytes +
                        report.secondary_bytes + report.gradient_slot_bytes + report.scratch_bytes +
                        report.partner_bytes + report.converted_bytes + report.partial_sum_bytes +
                        report.widened_bytes + report.staged_bytes - report.file_bytes;
}

}  // namespace

vescomm_fsdp_report_t make_report(const Spec &spec, const ModelPlan &plan,
                                  const vescomm_fsdp_report_t &asked) {
    const Mesh &mesh = plan.mesh;
    if (asked.rank >= mesh.ranks || asked.rank < -1)
        refuse("rank is {}; it must be -1 or below the {} ranks", asked.rank, mesh.ranks);
    if (asked.micro_batches < 0)
        refuse("micro_batches is {}; it must be at least 0", asked.micro_batches);
    vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
    report.micro_batches = std::max(asked.micro_batches, 1);
    report.node_ranks = asked.node_ranks;
    report.nodes = asked.nodes;
    report.comm = asked.comm;
    report.shard_ranks = mesh.shard_ranks;
    report.gather_ranks = mesh.gather_ranks();
    report.expert_shard_ranks = mesh.shard_ranks_of(UnitKind::experts);
    for (const Bucket &bucket : plan.buckets) {
        report.parameters += (bucket.elements - bucket.padding) * bucket.expert_ranks;
        report.padding += bucket.padding * bucket.expert_ranks;
    }
    const vescomm_fsdp_report_t of_all_ranks = report;
    report.rank = std::max(asked.rank, 0);
    const Placement placement = Placement::of(asked, mesh.ranks);
    PredictedPartialSums partial_sums(plan, placement);
    Facts facts{.dense_copies = dense_copy_bytes(plan)};
    if (has_partner_copies(spec, mesh)) facts.copy_distance = placement.distance_to_holder();
    std::optional<DeviceMemory> device;
    if (spec.options().memory == VESCOMM_FSDP_DEVICE) facts.device = &device.emplace(spec, plan);
    else facts.partial_sums = &partial_sums;
    set_memory(report, spec, plan, facts);
    const auto compare = [&](int rank) {
        vescomm_fsdp_report_t other = of_all_ranks;
        other.rank = rank;
        set_memory(other, spec, plan, facts);
        if (other.peak_bytes > report.peak_bytes) report = other;
    };
    if (asked.rank < 0)
        for (const int first : placement.distinct_groups(mesh))
            for (int rank = std::max(first, 1); rank < first + mesh.shard_ranks; ++rank)
                compare(rank);

    const int position = mesh.position(report.rank);
    const std::uint64_t parameter_codes =
        device ? device->codes : parameter_code_bytes(plan, position);
    set_phases(report, spec, plan, parameter_codes, partner_gradient_bytes(report, plan, facts));
    const auto gathers = gathers_per_step(spec, plan, report.micro_batches);
    report.gathers_per_step = total(gathers);
    report.gather_bytes_per_step = sum_over_units(plan, gathers, position, gather_bytes);
    report.group_gather_bytes_per_step =
        sum_over_units(plan, gathers, position, group_gather_bytes);
    // The first gather of a unit in a step fills the copy.
    for (std::size_t unit = 0; unit < gathers.size(); ++unit)
        if (gathers[unit] > 0) report.gather_bytes_per_step += fill_bytes(plan, unit, position);
    const std::uint64_t sums = mesh.keep_gradients ? 1 : report.micro_batches;
    report.reduce_bytes_per_step = sum_over_units(
        plan, std::vector<std::uint64_t>(plan.of_unit.size(), sums), position, reduce_bytes);
    report.replica_bytes_per_step = replica_bytes(plan, position);
    report.replicated_bytes = replicated_bytes(plan);
    return report;
}

}  // namespace vescomm::fsdp
