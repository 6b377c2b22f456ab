// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit.h"

#include <stdexcept>

#include "vescomm/planner.hpp"

namespace vescomm::fsdp {

PlannedUnit plan_unit(const UnitSpec &spec, int ranks, bool uniform) {
    planner::Problem problem;
    problem.ranks = ranks;
    for (const TensorSpec &tensor : spec.tensors)
        problem.tensors.push_back(
            {tensor.name, tensor.shape, tensor.block_rows, tensor.batch_dimensions});
    planner::Options options;
    options.mode = uniform ? planner::Mode::uniform : planner::Mode::ragged;
    const planner::Answer answer = planner::plan(problem, options);
    if (!answer.feasible)
        throw std::invalid_argument("unit \"" + spec.name + "\": " + answer.explanation);

    PlannedUnit unit;
    unit.spec = spec;
    unit.layout = Layout(planner::make_layout(problem, answer).release());
    unit.elements = answer.elements;
    unit.largest_shard = answer.largest_shard;
    unit.padding = answer.padding;
    for (const TensorSpec &tensor : spec.tensors)
        unit.index.push_back(unit.layout.find(tensor.name));
    std::int64_t end = 0;
    const auto gap_to = [&](std::int64_t begin) {
        if (begin > end) unit.gaps.emplace_back(end, begin);
    };
    for (std::size_t i = 0; i < spec.tensors.size(); ++i) {
        const Tensor tensor = unit.layout.tensor(i);
        gap_to(tensor.offset);
        end = tensor.offset + tensor.elements();
    }
    gap_to(answer.elements);
    return unit;
}

}  // namespace vescomm::fsdp
