// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/model_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fsdp/error.h"
#include "fsdp/spec/plan_slots.h"
#include "vescomm/planner.h"

namespace vescomm::fsdp {

namespace {

struct FreePlan {
    void operator()(vescomm_plan_t *plan) const noexcept { vescomm_plan_free(plan); }
};
using PlanPointer = std::unique_ptr<vescomm_plan_t, FreePlan>;

std::vector<StateType> states_of(const Spec &spec, const Parameter &parameter) {
    if (!parameter.group) return {};
    std::vector<StateType> types;
    for (const Group::State &state : spec.groups()[*parameter.group].states)
        types.push_back({state.type, state.per_block});
    return types;
}

std::int64_t block_of(const Spec &spec, const Parameter &parameter) {
    return parameter.group ? spec.groups()[*parameter.group].block_elements : 0;
}

// Returns the bucket of a unit that a parameter belongs to; adds one if there is none.
std::size_t bucket_for(ModelPlan &plan, const Spec &spec, std::size_t unit,
                       const Parameter &parameter) {
    Bucket wanted;
    wanted.unit = unit;
    wanted.type = parameter.type;
    wanted.gradient_type = spec.gradient_type(parameter);
    wanted.gather_type = parameter.gather_type;
    wanted.reduce_type = spec.reduce_type(parameter);
    wanted.master_type = spec.options().master_type;
    wanted.trainable = !parameter.frozen();
    wanted.replicated = parameter.replicated() && plan.mesh.shard_ranks > 1;
    const bool elsewhere = spec.options().offload_to_host != 0;
    wanted.copied = wanted.replicated && (wanted.type != wanted.master_type || elsewhere);
    wanted.states = states_of(spec, parameter);
    if (plan.kinds[unit] == UnitKind::experts) {
        wanted.expert_ranks = plan.mesh.expert_ranks;
        // A rank that has its experts alone sends no gradients of them.
        if (plan.mesh.shard_ranks_of(UnitKind::experts) == 1) wanted.reduce_type = 0;
    }
    for (const std::size_t bucket : plan.of_unit[unit]) {
        const Bucket &one = plan.buckets[bucket];
        if (one.type == wanted.type && one.gradient_type == wanted.gradient_type &&
            one.gather_type == wanted.gather_type && one.reduce_type == wanted.reduce_type &&
            one.trainable == wanted.trainable && one.replicated == wanted.replicated &&
            one.states == wanted.states)
            return bucket;
    }
    plan.buckets.push_back(std::move(wanted));
    plan.of_unit[unit].push_back(plan.buckets.size() - 1);
    return plan.buckets.size() - 1;
}

void make_buckets(ModelPlan &plan, const Spec &spec) {
    for (std::size_t unit = 0; unit < spec.units().size(); ++unit)
        // Frozen parameters come last.
        for (const bool frozen : {false, true})
            for (const std::size_t id : spec.units()[unit].parameters) {
                const Parameter &parameter = spec.parameters()[id];
                if (!parameter.stored() || parameter.frozen() != frozen) continue;
                const std::size_t bucket = bucket_for(plan, spec, unit, parameter);
                plan.buckets[bucket].places.push_back({id, 0, parameter.elements, parameter.rows(),
                                                       parameter.columns(), parameter.flags,
                                                       block_of(spec, parameter)});
            }
}

// A parameter as the planner sees it. Blocks of elements are blocks of a vector, or of a batch of
// vectors.
struct Planned {
    Planned(const Spec &spec, std::size_t id) : name(std::to_string(id)) {
        const Parameter &parameter = spec.parameters()[id];
        shape = parameter.shape;
        batch = parameter.batch_dimensions;
        rows = parameter.block_rows;
        // A multiple of the block has one scale.
        const std::int64_t together =
            parameter.gather_type == 0 && spec.reduce_type(parameter) == 0
                ? 1
                : gather_grid(parameter, spec.options().gather_block).factor;
        if (rows > 0)
            rows = std::min(rows, std::max<std::int64_t>(parameter.elements, 1)) * together;
        if (parameter.block_elements == 0) return;
        rows = std::min(parameter.block_elements, std::max<std::int64_t>(parameter.elements, 1)) *
               together;
        shape.assign(parameter.shape.begin(), parameter.shape.begin() + batch);
        shape.push_back(parameter.rows() * parameter.columns());
    }

    vescomm_planner_tensor_t tensor() const {
        vescomm_planner_tensor_t tensor = vescomm_planner_tensor_init();
        tensor.name = name.c_str();
        tensor.dimensions = static_cast<std::int32_t>(shape.size());
        tensor.shape = shape.data();
        tensor.block_rows = rows;
        tensor.batch_dimensions = batch;
        return tensor;
    }

    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t rows = 1;
    std::int32_t batch = 0;
};

// The tensors of a bucket that have elements, with the memory that they borrow.
struct PlannedBucket {
    std::vector<Planned> parameters;
    std::vector<vescomm_planner_tensor_t> tensors;
};

void read_layout(Bucket &bucket, const Layout &layout) {
    for (Place &place : bucket.places)
        if (place.elements > 0)
            place.offset = layout.tensor(layout.find(std::to_string(place.parameter))).offset;
    std::stable_sort(bucket.places.begin(), bucket.places.end(),
                     [](const Place &a, const Place &b) { return a.offset < b.offset; });
    const vescomm_layout_info_t info = layout.info();
    bucket.elements = info.elements;
    bucket.padding = info.padding;
    bucket.cuts.assign(1, 0);
    for (int rank = 0; rank < info.ranks; ++rank) bucket.cuts.push_back(layout.shard(rank).second);
}

// Parameters lie one behind the other, in one shard.
void lay_out_replicated(Bucket &bucket) {
    for (Place &place : bucket.places) {
        place.offset = bucket.elements;
        bucket.elements += place.elements;
    }
    bucket.cuts = {0, bucket.elements};
}

// Finds the layouts of all buckets of a kind together.
void lay_out(ModelPlan &plan, const Spec &spec, UnitKind kind) {
    const int ranks = plan.mesh.shard_ranks_of(kind);
    std::vector<PlannedBucket> planned(plan.buckets.size());
    std::vector<vescomm_planner_unit_t> units;
    std::vector<std::size_t> bucket_of;
    for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
        Bucket &bucket = plan.buckets[i];
        if (plan.kinds[bucket.unit] != kind) continue;
        if (bucket.replicated) {
            lay_out_replicated(bucket);
            continue;
        }
        bucket.cuts.assign(static_cast<std::size_t>(ranks) + 1, 0);
        for (const Place &place : bucket.places)
            if (place.elements > 0) planned[i].parameters.emplace_back(spec, place.parameter);
        for (const Planned &parameter : planned[i].parameters)
            planned[i].tensors.push_back(parameter.tensor());
        if (planned[i].tensors.empty()) continue;
        vescomm_planner_unit_t unit = vescomm_planner_unit_init();
        unit.name = spec.units()[bucket.unit].name.c_str();
        unit.type = bucket.master_type;
        unit.tensors = planned[i].tensors.data();
        unit.count = planned[i].tensors.size();
        units.push_back(unit);
        bucket_of.push_back(i);
    }
    if (units.empty()) return;
    vescomm_plan_t *made = nullptr;
    const vescomm_status_t status =
        vescomm_plan_create(units.data(), units.size(), ranks, &spec.planner(), &made);
    if (status != VESCOMM_OK) throw Failure(status, vescomm_plan_explain());
    const PlanPointer owner(made);
    for (std::size_t i = 0; i < units.size(); ++i) {
        vescomm_layout_t *layout = nullptr;
        check(vescomm_plan_create_layout(made, i, &layout));
        if (layout == nullptr) {
            vescomm_planner_totals_t totals = vescomm_planner_totals_init();
            check(vescomm_plan_get_totals(made, &totals));
            throw Failure(VESCOMM_ERROR_INVALID_ARGUMENT, vescomm_plan_explain());
        }
        read_layout(plan.buckets[bucket_of[i]], Layout(layout));
    }
}

void find_parameter_places(ModelPlan &plan, const Spec &spec) {
    plan.parameter_places.resize(spec.parameters().size());
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
        for (std::size_t place = 0; place < plan.buckets[bucket].places.size(); ++place)
            plan.parameter_places[plan.buckets[bucket].places[place].parameter] =
                ParameterPlace{bucket, place};
    for (std::size_t id = 0; id < spec.parameters().size(); ++id)
        if (const auto owner = spec.parameters()[id].tied_to)
            plan.parameter_places[id] = plan.parameter_places[*owner];
    for (std::size_t unit = 0; unit < spec.units().size(); ++unit) {
        std::vector<std::size_t> needs = {unit};
        for (const std::size_t id : spec.units()[unit].parameters) {
            if (!plan.parameter_places[id]) continue;
            const std::size_t owner = plan.buckets[plan.parameter_places[id]->bucket].unit;
            if (std::find(needs.begin(), needs.end(), owner) == needs.end()) needs.push_back(owner);
        }
        plan.needs.push_back(std::move(needs));
    }
}

// Returns the bytes of the largest unit of a kind, if bytes_of(bucket) are those of a bucket.
template <typename BytesOf>
std::uint64_t largest_unit(const ModelPlan &plan, UnitKind kind, const BytesOf &bytes_of) {
    std::uint64_t largest = 0;
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        if (plan.kinds[unit] != kind) continue;
        std::uint64_t bytes = 0;
        for (const std::size_t bucket : plan.of_unit[unit])
            bytes += align_bucket(bytes_of(plan.buckets[bucket]));
        largest = std::max(largest, bytes);
    }
    return largest;
}

}  // namespace

std::vector<vescomm_optimizer_piece_t> Bucket::pieces(int position) const {
    std::vector<vescomm_optimizer_piece_t> pieces;
    std::int64_t block = 0;
    for (const Place &place : places) {
        const std::int64_t first = std::max(begin(position), place.offset);
        const std::int64_t last = std::min(end(position), place.offset + place.elements);
        if (first >= last) continue;
        vescomm_optimizer_piece_t piece = vescomm_optimizer_piece_init();
        piece.flags = place.flags;
        piece.parameter = place.parameter;
        piece.first = elements_before(place, position) + first - place.offset;
        piece.elements = last - first;
        piece.offset = first - begin(position);
        piece.rows = place.rows;
        piece.columns = place.columns;
        if (place.block != 0) piece.block = block;
        block += blocks_of(piece, place.block);
        pieces.push_back(piece);
    }
    return pieces;
}

std::int64_t Bucket::blocks(int position) const {
    std::int64_t blocks = 0;
    std::size_t next = 0;
    for (const vescomm_optimizer_piece_t &piece : pieces(position)) {
        while (places[next].parameter != piece.parameter) ++next;
        blocks += blocks_of(piece, places[next].block);
    }
    return blocks;
}

Layout Bucket::layout() const {
    std::vector<std::int64_t> counts;
    for (std::size_t i = 1; i < cuts.size(); ++i) counts.push_back(cuts[i] - cuts[i - 1]);
    return Layout::from_counts(counts);
}

int ModelPlan::code_slot_for(int unit_slot) const {
    const auto others = static_cast<int>(other_slots);
    const auto dense = static_cast<int>(dense_slots);
    const auto shared = static_cast<int>(shared_code_slots);
    const auto dense_codes = static_cast<int>(dense_code_slots);
    if (unit_slot >= dense) {
        const int of_experts = static_cast<int>(code_slots.size()) - dense_codes;
        return of_experts == 0 ? -1 : dense_codes + (unit_slot - dense) % of_experts;
    }
    if (unit_slot < others) return shared == 0 ? -1 : unit_slot % shared;
    return dense_codes == shared ? -1 : shared + unit_slot - others;
}

int ModelPlan::sum_slot_for(int gradient_slot) const {
    const auto dense = static_cast<int>(dense_gradient_slots);
    const auto dense_sums = static_cast<int>(dense_sum_slots);
    const bool of_experts = gradient_slot >= dense;
    const int shared = of_experts ? static_cast<int>(sum_slots) - dense_sums : dense_sums;
    if (shared == 0) return -1;
    return of_experts ? dense_sums + (gradient_slot - dense) % shared : gradient_slot % shared;
}

bool ModelPlan::has_own_slot(std::size_t unit) const {
    return slot_ranges[unit].count() == 1 &&
           std::ranges::count(slot_ranges, slot_ranges[unit]) == 1;
}

std::uint64_t ModelPlan::slot_bytes_of(std::size_t unit) const {
    std::uint64_t bytes = 0;
    for (const std::size_t bucket : of_unit[unit])
        if (!buckets[bucket].quantised() && !buckets[bucket].replicated)
            bytes += align_bucket(buckets[bucket].parameter_bytes());
    return bytes;
}

std::uint64_t ModelPlan::quantised_bytes_of(std::size_t unit) const {
    std::uint64_t bytes = 0;
    for (const std::size_t bucket : of_unit[unit])
        if (buckets[bucket].quantised()) bytes += align_bucket(buckets[bucket].parameter_bytes());
    return bytes;
}

std::uint64_t ModelPlan::own_code_bytes(UnitKind kind, int position) const {
    return largest_unit(*this, kind, [&](const Bucket &bucket) {
        return bucket.quantised() ? bucket.code_bytes(position) : 0;
    });
}

std::uint64_t ModelPlan::sent_code_bytes(UnitKind kind) const {
    return largest_unit(*this, kind, [](const Bucket &bucket) {
        return bucket.sums_quantised() ? bucket.codes.bytes() : 0;
    });
}

std::uint64_t ModelPlan::received_code_bytes(UnitKind kind, int position) const {
    const auto ranks = static_cast<std::uint64_t>(mesh.shard_ranks_of(kind));
    return largest_unit(*this, kind, [&](const Bucket &bucket) {
        return bucket.sums_quantised() ? bucket.code_bytes(position) * ranks : 0;
    });
}

std::vector<std::uint64_t> ModelPlan::gradient_parts_of(std::size_t unit) const {
    std::vector<std::uint64_t> bytes;
    for (const std::size_t bucket : of_unit[unit])
        if (buckets[bucket].trainable)
            bytes.push_back(align_bucket(buckets[bucket].gradient_bytes()));
    return bytes;
}

bool ModelPlan::trainable(std::size_t unit) const {
    return std::ranges::any_of(of_unit[unit], [&](std::size_t bucket) {
        return buckets[bucket].trainable && buckets[bucket].elements > 0;
    });
}

bool ModelPlan::replicates() const {
    return std::ranges::any_of(buckets, &Bucket::replicated);
}

bool ModelPlan::sums_replicated() const {
    return std::ranges::any_of(buckets, [](const Bucket &bucket) {
        return bucket.replicated && bucket.trainable && bucket.elements > 0;
    });
}

ModelPlan plan_model(const Spec &spec, int ranks) {
    ModelPlan plan;
    plan.mesh = make_mesh(spec, ranks);
    plan.allocator = spec.allocator();
    plan.device_allocator = spec.device_allocator();
    plan.of_unit.resize(spec.units().size());
    for (const Unit &unit : spec.units())
        plan.kinds.push_back(unit.experts && plan.mesh.expert_ranks > 1 ? UnitKind::experts
                                                                        : UnitKind::dense);
    make_buckets(plan, spec);
    lay_out(plan, spec, UnitKind::dense);
    lay_out(plan, spec, UnitKind::experts);
    for (Bucket &bucket : plan.buckets)
        if (bucket.quantised() || bucket.sums_quantised())
            bucket.codes = gather_codes(spec, bucket);
    find_parameter_places(plan, spec);
    make_slots(plan, spec);
    return plan;
}

}  // namespace vescomm::fsdp
