// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/buffer_choice.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/types.h"
#include "comm/staging_buffer.h"
#include "execute/kernels.h"

namespace vescomm::internal {

namespace {

BufferProblem problem_of(const SumSettings &settings, const Layout &layout) {
    BufferProblem problem;
    problem.collective = Collective::reduce_scatter_v;
    problem.nodes = settings.nodes;
    problem.cuts.assign(layout.cuts().begin(), layout.cuts().end());
    problem.in_order = settings.in_order;
    problem.in_place = settings.in_place;
    problem.contributions_are_sums = contributions_are_sums(settings.type, settings.op);
    return problem;
}

// Elements of partial sums; 0 for algorithms that use the staging buffer.
std::int64_t partial_elements(const AlgorithmEntry &algorithm, const AnyProblem &problem) {
    const BufferProblem *buffers = problem.buffers();
    return buffers == nullptr || algorithm.max_partial == nullptr ? 0
                                                                  : algorithm.max_partial(*buffers);
}

// The most elements of partial sums that any algorithm needs for the problem.
std::int64_t upper_bound(const AnyProblem &problem) {
    std::int64_t bound = 0;
    for (const AlgorithmEntry &entry : algorithms())
        if (entry.collective == problem->collective && entry.solves(problem))
            bound = std::max(bound, partial_elements(entry, problem));
    return bound;
}

}  // namespace

bool contributions_are_sums(vescomm_type_t type, vescomm_op_t op) {
    return accumulator_of(type) == type && op != VESCOMM_PREMULTIPLIED_SUM;
}

std::vector<AnyProblem> buffer_variants(const BufferProblem &problem, vescomm_type_t type,
                                        bool forced) {
    std::vector<AnyProblem> variants{problem};
    if (type == VESCOMM_TYPE_DEFAULT) return variants;
    const auto bytes = problem.elements() * static_cast<std::int64_t>(size_of(type));
    if (!has_staged_variant(problem, bytes, forced)) return variants;
    ArrayProblem staged(problem);
    StagingBuffer::give_space(staged, type);
    variants.emplace_back(std::move(staged));
    return variants;
}

std::uint64_t partial_bytes(const SumSettings &settings, std::span<const Layout *const> layouts) {
    struct Bounded {
        std::int64_t bound;
        const Layout *layout;
    };
    std::vector<Bounded> all;
    for (const Layout *layout : layouts)
        all.push_back({upper_bound(problem_of(settings, *layout)), layout});
    std::ranges::stable_sort(all, std::greater(), &Bounded::bound);
    std::int64_t max = 0;
    for (std::size_t i = 0; i < all.size() && all[i].bound > max; ++i) {
        // Units of a model often have one layout.
        if (i > 0 && *all[i].layout == *all[i - 1].layout) continue;
        const std::vector<AnyProblem> variants =
            buffer_variants(problem_of(settings, *all[i].layout), settings.type,
                            !settings.forced.algorithm.empty());
        const Choice choice = select(variants, bytes_of(settings.type), settings.machine,
                                     settings.forced.algorithm, settings.forced.variable);
        max = std::max(max, partial_elements(*choice.algorithm, variants[choice.variant]));
    }
    return static_cast<std::uint64_t>(max) * size_of(accumulator_of(settings.type));
}

}  // namespace vescomm::internal
