// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Parameters that use the values of an earlier one.
#include "fsdp/error.h"
#include "fsdp/spec/spec.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp {

void Spec::tie(Parameter &parameter, const vescomm_fsdp_parameter_t &theirs,
               const std::string &name) const {
    if (theirs.tied_to < 0 || static_cast<std::size_t>(theirs.tied_to) >= parameters_.size())
        refuse("parameter \"{}\" is tied to {}; {} parameters were added before it, and -1 is none",
               name, theirs.tied_to, parameters_.size());
    const auto given = static_cast<std::size_t>(theirs.tied_to);
    const std::size_t owner = parameters_[given].tied_to.value_or(given);
    const Parameter &other = parameters_[owner];
    const std::string other_name = full_name(owner);
    if (other.ignored())
        refuse("parameter \"{}\" is tied to \"{}\", which is ignored", name, other_name);
    if (units_[other.unit].experts != units_[parameter.unit].experts)
        refuse(
            "parameter \"{}\" is tied to \"{}\", and one of their units has experts; tie "
            "parameters of the same kind of unit",
            name, other_name);
    if (other.shape != parameter.shape)
        refuse("parameter \"{}\" is tied to \"{}\", which has another shape", name, other_name);
    if (parameter.flags != 0 && parameter.flags != other.flags)
        refuse(
            "parameter \"{}\" is tied and has flags {:#x}; \"{}\" has {:#x}: give the same, or "
            "none",
            name, parameter.flags, other_name, other.flags);
    if (theirs.type != 0 && theirs.type != other.type)
        refuse("parameter \"{}\" is tied and has type {}; \"{}\" has {}: give the same, or 0", name,
               formats::name_of(theirs.type), other_name, formats::name_of(other.type));
    if (theirs.batch_dimensions != 0 && parameter.batch_dimensions != other.batch_dimensions)
        refuse(
            "parameter \"{}\" is tied and has batch_dimensions {}; \"{}\" has {}: give the same, "
            "or "
            "0",
            name, theirs.batch_dimensions, other_name, other.batch_dimensions);
    Parameter wanted = other;
    wanted.block_rows = theirs.block_rows;
    wanted.block_elements = theirs.block_elements;
    const bool gives_blocks = theirs.block_rows != 0 || theirs.block_elements != 0;
    if (gives_blocks && wanted.block() != other.described_block)
        refuse(
            "parameter \"{}\" is tied and has blocks of {} elements; \"{}\" has blocks of {}: give "
            "the same block_rows or block_elements, or 0",
            name, wanted.block(), other_name, other.described_block);
    parameter.tied_to = owner;
    parameter.flags = other.flags;
    parameter.type = other.type;
    parameter.gather_type = other.gather_type;
}

}  // namespace vescomm::fsdp
