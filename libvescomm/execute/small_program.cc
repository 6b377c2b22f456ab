// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/small_program.h"

#include <algorithm>

namespace vescomm::internal {

namespace {

bool is_small(const BoundStep &step, const ElementLoops &loops) {
    if (step.when != When::always || step.conditional || step.timed) return false;
    switch (step.action) {
        case Action::acquire:
            return true;
        case Action::copy:
            return step.to_type == step.from_type;
        case Action::reduce:
            return loops.single_loop(step).run != nullptr;
        case Action::signal:
        case Action::wait:
            return lies_beside_data(step.flag);
        case Action::put:
            break;
    }
    return false;
}

SmallAddress small_address(const Address &address, const Bases &bases) {
    return {.base = address.base, .slot = bases.slot_of(address), .offset = address.offset};
}

}  // namespace

SmallProgram::SmallProgram(const Program &program, const Bindings &bindings,
                           const ElementLoops &loops) {
    if (bindings.nodes.count() > 1 || bindings.sequences == nullptr || program.uses_registered ||
        program.lanes.size() != 1)
        return;
    const BoundLane &lane = program.lanes[0];
    if (!std::ranges::all_of(lane.steps,
                             [&](const BoundStep &step) { return is_small(step, loops); }))
        return;
    steps.reserve(lane.steps.size());
    for (const BoundStep &step : lane.steps) {
        SmallStep small{.action = step.action, .peer = step.peer, .bytes = step.bytes};
        switch (step.action) {
            case Action::wait:
                small.local = static_cast<std::uint32_t>(bindings.nodes.local_rank(step.peer));
                [[fallthrough]];
            case Action::signal:
                small.pairs = step.flag == pair_flag;
                break;
            case Action::copy:
                small.to = small_address(step.to, program.bases);
                small.from = small_address(step.from.address, program.bases);
                break;
            case Action::reduce:
                small.to = small_address(step.to, program.bases);
                small.count = step.count;
                small.loop = loops.single_loop(step);
                small.first_source = static_cast<std::uint32_t>(sources.size());
                small.sources = step.sum.contributions;
                for (std::size_t i = 0; i < step.sum.contributions; ++i)
                    sources.push_back(small_address(lane.sources[step.sum.first_source + i].address,
                                                    program.bases));
                break;
            case Action::acquire:
            case Action::put:
                break;
        }
        steps.push_back(small);
    }
}

}  // namespace vescomm::internal
