// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The specification: units, parameters, placements and optimizers. Plain values, checked as they
// are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fsdp/spec/allocator.h"
#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

// Placements along one axis of the mesh of ranks.
struct Axis {
    std::string name;
    int size = 0;  // 0: all ranks that the other axes leave
    vescomm_fsdp_placement_t parameters = VESCOMM_FSDP_SHARD;
    vescomm_fsdp_placement_t gradients = VESCOMM_FSDP_SHARD;
    vescomm_fsdp_placement_t optimizer = VESCOMM_FSDP_SHARD;
};

struct Parameter {
    std::string name;
    std::size_t unit = 0;
    std::vector<std::int64_t> shape;  // that a rank gathers: of experts, those of the rank
    std::vector<std::int64_t> strides;  // row-major, in elements
    std::int64_t elements = 0;  // of the shape
    std::optional<std::int64_t> experts;  // first extent in the whole model, in a unit of experts
    vescomm_type_t type = VESCOMM_F32;
    vescomm_type_t gather_type = 0;  // of codes in transfer; 0: gathered in `type`
    std::int32_t batch_dimensions = 0;
    std::int64_t block_rows = 1;
    std::int64_t block_elements = 0;  // 0: block_rows applies
    // block() of the description. Flags and optimizers can make the blocks larger.
    std::int64_t described_block = 0;
    std::uint32_t flags = 0;
    std::optional<std::size_t> tied_to;  // the parameter that has the memory, itself not tied
    std::optional<std::size_t> group;

    bool frozen() const { return (flags & VESCOMM_FSDP_FROZEN) != 0; }
    bool ignored() const { return (flags & VESCOMM_FSDP_IGNORED) != 0; }
    bool replicated() const { return (flags & VESCOMM_FSDP_REPLICATED) != 0; }
    // True if the parameter has memory of its own.
    bool stored() const { return !ignored() && !tied_to; }
    // The shape in the whole model, in which checkpoints have the parameter.
    std::vector<std::int64_t> whole_shape() const;
    // The shape of a state with an element for each block of an optimizer, in the whole model.
    std::vector<std::int64_t> shape_of_blocks(std::int64_t block_elements) const;
    // Extents of each matrix: the parameter has one for each index of its batch dimensions.
    std::int64_t rows() const;
    std::int64_t columns() const;
    // Elements of a block within a matrix.
    std::int64_t block() const;
    // Adds the blocks that an optimizer needs; -1: whole matrices.
    void require_blocks(std::int64_t elements);
};

struct Unit {
    std::string name;
    bool experts = false;  // the first dimension of its parameters counts experts
    bool kept = false;  // has a slot alone, and stays gathered until the step
    std::vector<std::size_t> parameters;  // ids
};

// Parameters with one optimizer and one set of settings.
struct Group {
    struct State {
        vescomm_type_t type = VESCOMM_F32;
        std::string name;
        bool per_block = false;  // one element for each block of block_elements elements

        bool operator==(const State &) const = default;
    };

    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();  // default_settings: NULL
    std::vector<std::byte> default_settings;  // kind.settings_bytes; empty: zeros
    std::vector<std::byte> settings;  // kind.settings_bytes
    std::vector<State> states;
    std::int64_t block_elements = 0;  // vescomm_optimizer_needs_t.block_elements
};

class Spec {
public:
    // Throws Failure for a wrong option, like all functions here. Structs have the size that this
    // library knows, also options.planner.
    explicit Spec(const vescomm_fsdp_spec_options_t &options);

    void add_axis(const Axis &axis);
    void use_preset(const std::string &preset);
    std::size_t add_unit(const std::string &name, std::uint32_t flags = 0);
    std::size_t add_parameter(std::size_t unit, const vescomm_fsdp_parameter_t &parameter);
    std::size_t add_group(std::span<const std::uint64_t> ids, const vescomm_optimizer_kind_t &kind,
                          const void *settings);
    // Replaces the settings of a group, which make_group() has checked.
    void set_settings(std::size_t group, std::vector<std::byte> settings);
    // Puts the trainable parameters without a group into a group with AdamW.
    void complete();

    const vescomm_fsdp_spec_options_t &options() const { return options_; }
    const vescomm_planner_options_t &planner() const { return planner_; }
    // Empty: masters and states are in memory.
    const std::string &offload_folder() const { return offload_folder_; }
    // For memory of the host, and of a device.
    const Allocator &allocator() const { return allocator_; }
    const Allocator &device_allocator() const { return device_allocator_; }
    const std::vector<Axis> &axes() const { return axes_; }
    const std::vector<Unit> &units() const { return units_; }
    const std::vector<Parameter> &parameters() const { return parameters_; }
    const std::vector<Group> &groups() const { return groups_; }

    vescomm_type_t gradient_type(const Parameter &parameter) const;
    // The type of codes in which the gradients of a parameter are summed; 0: their own type.
    vescomm_type_t reduce_type(const Parameter &parameter) const;
    // "unit.parameter"
    std::string full_name(std::size_t id) const;
    // A hash of the seed and of the name, for the random numbers of a parameter.
    std::uint64_t random_key(std::size_t id) const;

private:
    // Reduces the shape of a parameter to the experts of one rank.
    void divide_experts(Parameter &parameter, const std::string &name) const;
    // Gives a parameter the properties of the one to which it is tied.
    void tie(Parameter &parameter, const vescomm_fsdp_parameter_t &theirs,
             const std::string &name) const;

    vescomm_fsdp_spec_options_t options_;
    vescomm_planner_options_t planner_;
    std::string offload_folder_;
    Allocator allocator_, device_allocator_;
    std::vector<Axis> axes_;
    std::vector<Unit> units_;
    std::vector<Parameter> parameters_;
    std::vector<Group> groups_;
    std::map<std::string, std::size_t> ids_;  // of parameters, by full name
};

}  // namespace vescomm::fsdp
