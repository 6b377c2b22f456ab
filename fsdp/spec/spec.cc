// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/spec.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fsdp/checkpoint/tensor.h"
#include "fsdp/error.h"
#include "fsdp/hash.h"
#include "fsdp/spec/gather_codes.h"
#include "fsdp/spec/group.h"
#include "fsdp/spec/masters.h"
#include "fsdp/spec/mesh.h"
#include "planner/formats/element_types.h"
#include "planner/formats/quoted.h"

namespace vescomm::fsdp {

namespace {

bool is_f8(vescomm_type_t type) {
    return type == VESCOMM_F8E4M3 || type == VESCOMM_F8E5M2;
}

// Gradients have the types that masters have.
void require_gradient_type(const char *what, vescomm_type_t type) {
    if (!is_master_type(type))
        refuse("{} is {}; it must be VESCOMM_F32, VESCOMM_BF16 or VESCOMM_F16", what, type);
}

void require_parameter_type(const char *what, vescomm_type_t type) {
    if (!is_master_type(type) && !is_f8(type))
        refuse(
            "{} is {}; it must be VESCOMM_F32, VESCOMM_BF16, VESCOMM_F16, VESCOMM_F8E4M3 or "
            "VESCOMM_F8E5M2",
            what, type);
}

bool is_code_type(vescomm_type_t type) {
    return type == VESCOMM_I8 || type == VESCOMM_F8E4M3;
}

// Far above the size at which a scale costs anything.
constexpr std::int32_t max_gather_block = 1 << 20;
constexpr std::int32_t default_gather_block = 128;

void require_not_negative(const char *what, std::int64_t value) {
    if (value < 0) refuse("{} is {}; it must be at least 0", what, value);
}

// A program that sets it expects what this library does not know.
void require_zero(const std::string &what, std::uint32_t value) {
    if (value != 0) refuse("{} is {}; leave it zero", what, value);
}

// Names are in error texts and metrics, which have lines.
void require_printable(const char *what, const std::string &name) {
    // U+0080 to U+009F have two bytes.
    for (std::size_t i = 0; i < name.size(); ++i) {
        const auto byte = static_cast<unsigned char>(name[i]);
        const auto next = static_cast<unsigned char>(i + 1 < name.size() ? name[i + 1] : ' ');
        const bool control = byte < ' ' || byte == 0x7f || (byte == 0xc2 && next < 0xa0);
        if (!control) continue;
        refuse("{}, {}, has a control character; rename it", what, formats::quoted_text(name));
    }
}

// Sizes of buffers are limited to 2^40 elements, as the counts of vescomm.h.
constexpr std::int64_t max_elements = std::int64_t{1} << 40;
constexpr std::int32_t max_update_threads = 1024;

std::int64_t count_elements(const std::string &name, const std::vector<std::int64_t> &shape) {
    std::int64_t product = 1;
    bool empty = false;
    for (const std::int64_t extent : shape) {
        if (extent < 0)
            refuse("parameter \"{}\" has an extent of {}; use at least 0", name, extent);
        if (extent == 0) {
            empty = true;
        } else if (product > max_elements / extent) {
            refuse(
                "parameter \"{}\" has more than 2^40 elements, or, without any, extents whose "
                "product without zeros is larger; divide it",
                name);
        } else {
            product *= extent;
        }
    }
    return empty ? 0 : product;
}

std::vector<std::int64_t> row_major(const std::vector<std::int64_t> &shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;)
        strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
    return strides;
}

}  // namespace

std::vector<std::int64_t> Parameter::whole_shape() const {
    std::vector<std::int64_t> whole = shape;
    if (experts) whole.front() = *experts;
    return whole;
}

std::vector<std::int64_t> Parameter::shape_of_blocks(std::int64_t block_elements) const {
    const std::int64_t matrix = rows() * columns();
    const std::int64_t length = block_elements < 0 ? matrix : std::min(block_elements, matrix);
    std::vector<std::int64_t> blocks = whole_shape();
    blocks.resize(static_cast<std::size_t>(batch_dimensions));
    blocks.push_back(length == 0 ? 0 : (matrix + length - 1) / length);
    return blocks;
}

std::int64_t Parameter::rows() const {
    const auto first = static_cast<std::size_t>(batch_dimensions);
    return first < shape.size() ? shape[first] : 1;
}

std::int64_t Parameter::columns() const {
    std::int64_t product = 1;
    for (std::size_t i = static_cast<std::size_t>(batch_dimensions) + 1; i < shape.size(); ++i)
        product *= shape[i];
    return product;
}

std::int64_t Parameter::block() const {
    const std::int64_t matrix = rows() * columns();
    if (block_elements > 0) return std::min(block_elements, matrix);
    return block_rows == -1 || block_rows >= rows() ? matrix : block_rows * columns();
}

void Parameter::require_blocks(std::int64_t elements) {
    if (elements == 0 || elements == 1) return;
    const std::int64_t matrix = rows() * columns();
    const std::int64_t own = block();
    // Blocks of at most 2^40 elements: the product of two of them may not fit.
    const std::int64_t factor = elements > 0 ? elements / std::gcd(own, elements) : matrix;
    const bool whole = own >= matrix || factor >= (matrix + own - 1) / own;
    block_rows = whole ? -1 : 1;
    block_elements = whole ? 0 : own * factor;
}

Spec::Spec(const vescomm_fsdp_spec_options_t &options) : options_(options) {
    require_zero("reserved of the options", options_.reserved);
    require_zero("reserved2 of the options", options_.reserved2);
    require_zero("reserved3 of the options", options_.reserved3);
    if (options_.memory != VESCOMM_FSDP_HOST && options_.memory != VESCOMM_FSDP_DEVICE)
        refuse("memory is {}; it must be VESCOMM_FSDP_HOST (0) or VESCOMM_FSDP_DEVICE (1)",
               options_.memory);
    if (options_.offload_to_host != 0 && options_.memory != VESCOMM_FSDP_DEVICE)
        refuse(
            "offload_to_host is {} on host memory; set it to 0, or memory to VESCOMM_FSDP_DEVICE",
            options_.offload_to_host);
    if (options_.compute_type == 0) options_.compute_type = VESCOMM_F32;
    require_parameter_type("compute_type", options_.compute_type);
    if (options_.gradient_type != 0) require_gradient_type("gradient_type", options_.gradient_type);
    if (options_.master_type == 0) options_.master_type = VESCOMM_F32;
    require_masters(options_);
    if (options_.gather_type != 0 && !is_code_type(options_.gather_type))
        refuse(
            "gather_type is {}; it must be VESCOMM_I8, VESCOMM_F8E4M3, or 0 to gather in the type "
            "of the parameters",
            options_.gather_type);
    if (options_.reduce_type != 0 && !is_code_type(options_.reduce_type))
        refuse(
            "reduce_type is {}; it must be VESCOMM_I8, VESCOMM_F8E4M3, or 0 to sum in the type of "
            "the gradients",
            options_.reduce_type);
    if (options_.gather_block < 0 || options_.gather_block > max_gather_block)
        refuse("gather_block is {}; it must be at least 0 and at most {}", options_.gather_block,
               max_gather_block);
    if (options_.gather_block == 0) options_.gather_block = default_gather_block;
    require_not_negative("slots", options_.slots);
    require_not_negative("gradient_slots", options_.gradient_slots);
    require_not_negative("reshard_ranks", options_.reshard_ranks);
    require_not_negative("large_unit_bytes", options_.large_unit_bytes);
    require_not_negative("expert_ranks", options_.expert_ranks);
    require_not_negative("expert_divisor", options_.expert_divisor);
    if (options_.update_threads < 0 || options_.update_threads > max_update_threads)
        refuse("update_threads is {}; it must be at least 0 and at most {}",
               options_.update_threads, max_update_threads);
    if (options_.expert_ranks == 0) options_.expert_ranks = 1;
    if (options_.slots == 0) options_.slots = 2;
    if (options_.gradient_slots == 0) options_.gradient_slots = 2;
    if (options_.order < VESCOMM_FSDP_DECLARED || options_.order > VESCOMM_FSDP_EXPLICIT)
        refuse("order is {}; it must be declared (0), recorded (1) or explicit (2)",
               options_.order);
    if (options_.allocator != nullptr) {
        require_zero("reserved of the allocator", options_.allocator->reserved);
        (options_.memory == VESCOMM_FSDP_DEVICE ? device_allocator_ : allocator_) =
            Allocator(*options_.allocator);
        options_.allocator = nullptr;  // borrowed for the call
    }
    if (options_.offload_folder != nullptr) {
        offload_folder_ = options_.offload_folder;
        if (offload_folder_.empty())
            refuse("offload_folder is empty; name a folder, or pass NULL to keep all in memory");
        options_.offload_folder = nullptr;
    }
    planner_ = vescomm_planner_options_init();
    planner_.mode = VESCOMM_PLANNER_BALANCED;
    if (options_.planner == nullptr) return;
    planner_ = *options_.planner;
    if (planner_.weights != nullptr)
        refuse("planner.weights is given; shards of the engine have equal weights, pass NULL");
    options_.planner = nullptr;
}

void Spec::add_axis(const Axis &axis) {
    if (axis.name.empty()) refuse("an axis has no name; give it one");
    require_not_negative("the size of an axis", axis.size);
    for (const Axis &other : axes_)
        if (other.name == axis.name) refuse("there is an axis \"{}\" already", axis.name);
    std::vector<Axis> axes = axes_;
    axes.push_back(axis);
    check_axes(axes);
    axes_ = std::move(axes);
}

void Spec::use_preset(const std::string &preset) {
    axes_ = axes_of_preset(preset);
}

std::size_t Spec::add_unit(const std::string &name, std::uint32_t flags) {
    if (name.empty()) refuse("a unit has no name; give it one");
    if (!checkpoint::is_utf8(name))
        refuse("the name of a unit, {}, is no UTF-8; rename it", formats::quoted_text(name));
    require_printable("the name of a unit", name);
    if ((flags & ~(VESCOMM_FSDP_EXPERTS | VESCOMM_FSDP_KEEP_GATHERED)) != 0)
        refuse("flags of unit \"{}\" are {:#x}; EXPERTS and KEEP_GATHERED exist", name, flags);
    for (const Unit &unit : units_)
        if (unit.name == name) refuse("there is a unit \"{}\" already; names are unique", name);
    units_.push_back(
        {name, (flags & VESCOMM_FSDP_EXPERTS) != 0, (flags & VESCOMM_FSDP_KEEP_GATHERED) != 0, {}});
    return units_.size() - 1;
}

std::size_t Spec::add_parameter(std::size_t unit, const vescomm_fsdp_parameter_t &theirs) {
    if (unit >= units_.size())
        refuse("there is no unit {}; {} units were added so far", unit, units_.size());
    if (theirs.name == nullptr || *theirs.name == 0)
        refuse("a parameter of unit \"{}\" has no name; give it one", units_[unit].name);
    Parameter parameter;
    parameter.unit = unit;
    parameter.name = theirs.name;
    const std::string name = units_[unit].name + "." + parameter.name;
    if (const auto other = ids_.find(name); other != ids_.end())
        refuse(
            "there is a parameter \"{}\" already, \"{}\" of unit \"{}\"; checkpoints need the "
            "name of the unit, a dot and the name of the parameter to be unique",
            name, parameters_[other->second].name, units_[parameters_[other->second].unit].name);
    require_printable("the name of a parameter", name);
    require_zero("reserved of parameter \"" + name + "\"", theirs.reserved);
    require_zero("reserved_2 of parameter \"" + name + "\"", theirs.reserved_2);
    if (theirs.dimensions < 0 || (theirs.dimensions > 0 && theirs.shape == nullptr))
        refuse("parameter \"{}\" has {} dimensions and {}", name, theirs.dimensions,
               theirs.shape == nullptr ? "no shape" : "a shape");
    if (static_cast<std::size_t>(theirs.dimensions) > formats::max_dimensions)
        refuse("parameter \"{}\" has {} dimensions; at most {} are possible", name,
               theirs.dimensions, formats::max_dimensions);
    if (theirs.dimensions > 0)
        parameter.shape.assign(theirs.shape, theirs.shape + theirs.dimensions);
    parameter.elements = count_elements(name, parameter.shape);
    if (units_[unit].experts) divide_experts(parameter, name);
    parameter.strides = row_major(parameter.shape);
    parameter.type = theirs.type != 0 ? theirs.type : options_.compute_type;
    require_parameter_type(("type of parameter \"" + name + "\"").c_str(), parameter.type);
    if (theirs.tied_to == -1 && (theirs.flags & VESCOMM_FSDP_IGNORED) == 0)
        require_gatherable(name, parameter.type, options_);
    const vescomm_type_t gather_type =
        theirs.gather_type != 0 ? theirs.gather_type : options_.gather_type;
    if (gather_type != 0 && gather_type != parameter.type && !is_code_type(gather_type))
        refuse(
            "gather_type of parameter \"{}\" is {}; it must be VESCOMM_I8, VESCOMM_F8E4M3, or the "
            "type of the parameter, {}",
            name, gather_type, parameter.type);
    parameter.gather_type = is_code_type(gather_type) ? gather_type : 0;
    if (theirs.batch_dimensions < 0 || theirs.batch_dimensions > theirs.dimensions)
        refuse("parameter \"{}\" has batch_dimensions {} of {} dimensions", name,
               theirs.batch_dimensions, theirs.dimensions);
    parameter.batch_dimensions =
        parameter.experts ? std::max(theirs.batch_dimensions, 1) : theirs.batch_dimensions;
    if (theirs.block_rows < -1)
        refuse("parameter \"{}\" has block_rows {}; it must be at least -1", name,
               theirs.block_rows);
    require_not_negative("block_elements", theirs.block_elements);
    if (theirs.block_elements > 0 && theirs.block_rows != 0)
        refuse("parameter \"{}\" has block_rows {} and block_elements {}; give one of them", name,
               theirs.block_rows, theirs.block_elements);
    parameter.block_rows = theirs.block_rows == 0 ? 1 : theirs.block_rows;
    parameter.block_elements = theirs.block_elements;
    parameter.described_block = parameter.block();
    if ((theirs.flags & VESCOMM_FSDP_MATRIX) != 0) parameter.require_blocks(-1);
    constexpr std::uint32_t known =
        VESCOMM_FSDP_FROZEN | VESCOMM_FSDP_IGNORED | VESCOMM_FSDP_MATRIX | VESCOMM_FSDP_REPLICATED;
    if ((theirs.flags & ~known) != 0)
        refuse("parameter \"{}\" has flags {:#x}; FROZEN, IGNORED, MATRIX and REPLICATED exist",
               name, theirs.flags);
    parameter.flags = theirs.flags;
    if (parameter.replicated() && parameter.experts)
        refuse(
            "parameter \"{}\" is replicated in a unit of experts; ranks have different experts, so "
            "add it to another unit",
            name);
    if (parameter.replicated() ||
        !codes_are_smaller(parameter, options_.gather_block, parameter.type))
        parameter.gather_type = 0;
    if (theirs.tied_to != -1) tie(parameter, theirs, name);
    if (parameter.stored())
        checkpoint::check_tensor({name, master_role, parameter.whole_shape(), options_.master_type},
                                 "no checkpoint can hold the parameter");
    ids_.emplace(name, parameters_.size());
    parameters_.push_back(std::move(parameter));
    units_[unit].parameters.push_back(parameters_.size() - 1);
    return parameters_.size() - 1;
}

void Spec::divide_experts(Parameter &parameter, const std::string &name) const {
    if (parameter.shape.empty())
        refuse(
            "parameter \"{}\" is a scalar in a unit of experts; its first dimension must count "
            "the experts, or add it to another unit",
            name);
    parameter.experts = parameter.shape.front();
    if (*parameter.experts % options_.expert_ranks != 0)
        refuse(
            "parameter \"{}\" has {} experts for {} ranks; expert_ranks must divide the first "
            "dimension of each parameter of unit \"{}\"",
            name, *parameter.experts, options_.expert_ranks, units_[parameter.unit].name);
    parameter.shape.front() /= options_.expert_ranks;
    parameter.elements /= options_.expert_ranks;
}

std::size_t Spec::add_group(std::span<const std::uint64_t> ids,
                            const vescomm_optimizer_kind_t &kind, const void *settings) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::uint64_t id = ids[i];
        if (id >= parameters_.size())
            refuse("there is no parameter {}; {} were added so far", id, parameters_.size());
        if (!parameters_[id].stored() || parameters_[id].frozen())
            refuse("parameter \"{}\" is frozen, ignored or tied; leave it out of the group",
                   full_name(id));
        if (parameters_[id].group) refuse("parameter \"{}\" is in a group already", full_name(id));
        if (std::ranges::find(ids.first(i), id) != ids.first(i).end())
            refuse("parameter \"{}\" is given twice; give each parameter of a group once",
                   full_name(id));
    }
    groups_.push_back(make_group(kind, settings));
    for (const std::uint64_t id : ids) {
        parameters_[id].group = groups_.size() - 1;
        parameters_[id].require_blocks(groups_.back().block_elements);
    }
    return groups_.size() - 1;
}

void Spec::set_settings(std::size_t group, std::vector<std::byte> settings) {
    groups_[group].settings = std::move(settings);
}

void Spec::complete() {
    if (axes_.empty()) use_preset("zero3");
    std::vector<std::uint64_t> rest;
    for (std::size_t id = 0; id < parameters_.size(); ++id)
        if (parameters_[id].stored() && !parameters_[id].frozen() && !parameters_[id].group)
            rest.push_back(id);
    if (rest.empty()) return;
    const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
    add_group(rest, *vescomm_optimizer_get_adamw(), &settings);
}

vescomm_type_t Spec::gradient_type(const Parameter &parameter) const {
    if (options_.gradient_type != 0) return options_.gradient_type;
    return is_f8(parameter.type) ? VESCOMM_BF16 : parameter.type;
}

vescomm_type_t Spec::reduce_type(const Parameter &parameter) const {
    const bool travels = !parameter.frozen() && !parameter.replicated();
    const bool smaller =
        travels && codes_are_smaller(parameter, options_.gather_block, gradient_type(parameter));
    return smaller ? options_.reduce_type : 0;
}

std::string Spec::full_name(std::size_t id) const {
    return units_[parameters_[id].unit].name + "." + parameters_[id].name;
}

std::uint64_t Spec::random_key(std::size_t id) const {
    const std::string name = full_name(id);
    return hash_of(name.data(), name.size(), options_.seed);
}

}  // namespace vescomm::fsdp
