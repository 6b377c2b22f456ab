// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/memory_speed.h"

#include <algorithm>
#include <bit>

#include "schedule/rails.h"

namespace vescomm::internal {

namespace {

// Working set in bytes of the ranks of a host, which share its cache.
double footprint(const AnyProblem &problem, const ElementBytes &bytes, const Machine &machine) {
    const BufferProblem *buffers = problem.buffers();
    const bool per_node = buffers != nullptr && buffers->per_node;
    const double slabs = per_node ? 1 : problem->nodes.largest();
    return slabs * std::min(machine.nodes_per_host, problem->nodes.count()) *
           static_cast<double>(problem->elements()) * bytes.element;
}

}  // namespace

MemorySpeed speed_for(const AnyProblem &problem, const ElementBytes &bytes, const Machine &whole) {
    Machine machine = whole;
    const auto width =
        static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(bytes.element)));
    const double factor = machine.reduce_of_width[std::clamp<std::size_t>(width, 1, 4) - 1];
    machine.in_cache.reduce *= factor;
    machine.in_memory.reduce *= factor;
    const double outside = share_in_memory(footprint(problem, bytes, machine), machine.cache_bytes);
    if (outside == 0) return machine.in_cache;
    if (outside == 1) return machine.in_memory;
    const auto between = [outside](double in_cache, double in_memory) {
        if (in_cache <= 0 || in_memory <= 0) return std::max(in_cache, in_memory);
        return 1 / ((1 - outside) / in_cache + outside / in_memory);
    };
    return {.copy = between(machine.in_cache.copy, machine.in_memory.copy),
            .reduce = between(machine.in_cache.reduce, machine.in_memory.reduce),
            .node = between(machine.in_cache.node, machine.in_memory.node)};
}

}  // namespace vescomm::internal
