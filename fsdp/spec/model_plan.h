// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The plan of a model: its buckets and their layouts, for a number of ranks. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fsdp/spec/gather_codes.h"
#include "fsdp/spec/mesh.h"
#include "fsdp/spec/slot_ranges.h"
#include "fsdp/spec/spec.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::fsdp {

// The number of blocks before an element of a parameter, which begins one. Blocks of `block`
// elements, -1: whole matrices, begin again at each matrix of `matrix` elements. 0 without blocks.
constexpr std::int64_t blocks_before(std::int64_t element, std::int64_t matrix,
                                     std::int64_t block) {
    if (block == 0 || matrix == 0) return 0;
    const std::int64_t length = block < 0 || block > matrix ? matrix : block;
    return element / matrix * ((matrix + length - 1) / length) + element % matrix / length;
}

// The number of blocks of a piece.
constexpr std::int64_t blocks_of(const vescomm_optimizer_piece_t &piece, std::int64_t block) {
    const std::int64_t matrix = piece.rows * piece.columns;
    return blocks_before(piece.first + piece.elements, matrix, block) -
           blocks_before(piece.first, matrix, block);
}

// A parameter in a bucket.
struct Place {
    std::size_t parameter = 0;  // id
    std::int64_t offset = 0;  // in elements of the bucket
    std::int64_t elements = 0;
    std::int64_t rows = 0;  // of each matrix
    std::int64_t columns = 0;
    std::uint32_t flags = 0;  // of the parameter
    std::int64_t block = 0;  // elements of a block of its optimizer; -1: a matrix; 0: none
};

// The elements of a state of an optimizer.
struct StateType {
    vescomm_type_t type = VESCOMM_F32;
    bool per_block = false;

    std::size_t bytes() const { return vescomm_type_get_bytes(type); }
    bool operator==(const StateType &) const = default;
};

// Parameters of one unit that are gathered by one request: they have the same types and the same
// states of optimizers.
struct Bucket {
    std::size_t unit = 0;
    vescomm_type_t type = VESCOMM_F32;  // of gathered parameters
    vescomm_type_t gradient_type = VESCOMM_F32;
    vescomm_type_t gather_type = 0;  // of codes in transfer; 0: gathered in `type`
    vescomm_type_t reduce_type = 0;  // of codes of gradients; 0: summed in gradient_type
    vescomm_type_t master_type = VESCOMM_F32;  // the same for all buckets
    bool trainable = true;
    // Every rank has all elements, and they are not gathered. False if a unit has one shard only.
    bool replicated = false;
    // Replicated, and the trainer reads a copy: masters have another type, or are not in the memory
    // of its device.
    bool copied = false;
    std::vector<StateType> states;  // of the optimizer
    // Ranks that have different experts. The other members are those of one of these
    // ranks, and the same for all. 1: the bucket is dense.
    int expert_ranks = 1;
    std::vector<Place> places;  // in order of offset
    std::vector<std::int64_t> cuts;  // one more than shards
    std::int64_t elements = 0;
    std::int64_t padding = 0;
    GatherCodes codes;  // of a bucket with parameters or gradients in 8 bits

    UnitKind kind() const { return expert_ranks > 1 ? UnitKind::experts : UnitKind::dense; }
    // True if the parameters are gathered, and there are some.
    bool gathered() const { return !replicated && elements > 0; }
    // True if the parameters are quantised for gathers, and there are some.
    bool quantised() const { return gather_type != 0 && elements > 0; }
    // True if the gradients are quantised for sums, and there are some.
    bool sums_quantised() const { return reduce_type != 0 && elements > 0; }
    // The number of the shard of a position, which ranks with other experts have too.
    int shard_number(int position) const { return replicated ? 0 : position / expert_ranks; }
    std::int64_t begin(int position) const { return cuts[shard_number(position)]; }
    std::int64_t end(int position) const { return cuts[shard_number(position) + 1]; }
    std::int64_t shard(int position) const { return end(position) - begin(position); }
    std::uint64_t code_bytes(int position) const { return codes.bytes(shard_number(position)); }
    // Elements of a parameter before those of a position: the experts of other ranks.
    std::int64_t elements_before(const Place &place, int position) const {
        return position % expert_ranks * place.elements;
    }
    std::uint64_t parameter_bytes() const {
        return static_cast<std::uint64_t>(elements) * vescomm_type_get_bytes(type);
    }
    std::uint64_t gradient_bytes() const {
        return static_cast<std::uint64_t>(elements) * vescomm_type_get_bytes(gradient_type);
    }
    // The pieces of the shard of a position. Elements count within the whole parameter.
    std::vector<vescomm_optimizer_piece_t> pieces(int position) const;
    // Bytes of the copy that the trainer reads instead of masters.
    std::uint64_t converted_bytes() const { return copied ? parameter_bytes() : 0; }
    // The number of blocks of optimizers in the shard of a position.
    std::int64_t blocks(int position) const;
    // Elements of a state in the shard of a position.
    std::int64_t state_elements(std::size_t state, int position) const {
        return states[state].per_block ? blocks(position) : shard(position);
    }
    // A vector cut as the bucket is.
    Layout layout() const;
};

// The place of a parameter in the model.
struct ParameterPlace {
    std::size_t bucket = 0;
    std::size_t place = 0;
};

struct ModelPlan {
    Mesh mesh;
    Allocator allocator, device_allocator;  // of memory of the host, and of a device
    std::vector<Bucket> buckets;  // unit after unit; the trainable ones of a unit first
    std::vector<std::vector<std::size_t>> of_unit;  // buckets of each unit
    std::vector<UnitKind> kinds;  // by unit; with expert_ranks 1 all are dense
    std::vector<std::optional<ParameterPlace>>
        parameter_places;  // of parameters; none for ignored ones
    // Units whose parameters a unit uses: itself, then the owners of its tied parameters.
    std::vector<std::vector<std::size_t>> needs;

    // Slots for gathered parameters: bytes of each, and the ones that each unit may use.
    std::vector<std::uint64_t> slots;
    std::vector<SlotRange> slot_ranges;
    std::vector<std::uint64_t> gradient_slots;
    // The parts of each gradient slot. Requests on one memory must not run at the same time, so
    // each trainable bucket of a unit has a memory of its own.
    std::vector<std::vector<std::uint64_t>> gradient_slot_parts;
    std::vector<SlotRange> gradient_slot_ranges;
    // Slots for experts are behind these: their memory is that of other groups of ranks.
    std::size_t dense_slots = 0;
    std::size_t dense_gradient_slots = 0;
    UnitKind kind_of_slot(std::size_t slot) const {
        return slot < dense_slots ? UnitKind::dense : UnitKind::experts;
    }
    UnitKind kind_of_gradient_slot(std::size_t slot) const {
        return slot < dense_gradient_slots ? UnitKind::dense : UnitKind::experts;
    }
    // By unit: it uses slots for large units. Those of parameters are behind the first other_slots.
    std::vector<bool> large;
    std::size_t other_slots = 0;
    // Slots of quantised buckets, in memory of their own; their number is that of `slots`.
    std::vector<std::uint64_t> quantised_slots;
    // Codes in transfer, with counters. Unit slots share them in turn; slots for large units have
    // one each, behind the others. Those of experts are behind dense_code_slots.
    // Units without codes have none.
    std::vector<std::uint64_t> code_slots;
    std::size_t shared_code_slots = 0;  // of dense units that are not large
    std::size_t dense_code_slots = 0;
    UnitKind kind_of_code_slot(std::size_t slot) const {
        return slot < dense_code_slots ? UnitKind::dense : UnitKind::experts;
    }
    // -1: none.
    int code_slot_for(int unit_slot) const;
    // Counters at the beginning of a code slot, and a byte for each rank that gathers.
    std::uint64_t code_counter_bytes = 0;
    static constexpr std::uint64_t code_rank_offset = 16;

    // True if no other unit uses the slot of a unit, which then stays gathered until the step.
    bool has_own_slot(std::size_t unit) const;
    // Parameters that are not quantised.
    std::uint64_t slot_bytes_of(std::size_t unit) const;
    std::uint64_t quantised_bytes_of(std::size_t unit) const;
    // The codes of one rank in a code slot for a kind of units.
    std::uint64_t own_code_bytes(UnitKind kind, int position) const;
    // Slots for codes of gradients, of one rank. Gradient slots of one kind share them in turn.
    // Those of experts are behind dense_sum_slots: a sum of one kind does not wait for the other.
    std::size_t sum_slots = 0;
    std::size_t dense_sum_slots = 0;
    UnitKind kind_of_sum_slot(std::size_t slot) const {
        return slot < dense_sum_slots ? UnitKind::dense : UnitKind::experts;
    }
    // -1: none, because no gradients of the kind travel in 8 bits.
    int sum_slot_for(int gradient_slot) const;
    // Bytes of a slot for a kind of units.
    std::uint64_t sent_code_bytes(UnitKind kind) const;
    std::uint64_t received_code_bytes(UnitKind kind, int position) const;
    // Gradients of each trainable bucket of a unit, in the order of of_unit.
    std::vector<std::uint64_t> gradient_parts_of(std::size_t unit) const;
    bool trainable(std::size_t unit) const;
    // True if a bucket is replicated.
    bool replicates() const;
    // True if there are gradients of replicated buckets, which all ranks sum.
    bool sums_replicated() const;
};

// Buckets of a unit lie at multiples of this in a slot.
constexpr std::uint64_t bucket_alignment = 64;

constexpr std::uint64_t align_bucket(std::uint64_t bytes) {
    return (bytes + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
}

// Plans the whole model. Throws Failure when there is no layout, or the slots do not suffice for
// the units that are open at the same time.
ModelPlan plan_model(const Spec &spec, int ranks);

}  // namespace vescomm::fsdp
