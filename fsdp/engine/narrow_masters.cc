// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/narrow_masters.h"

#include <algorithm>

#include "execute/kernels.h"

namespace vescomm::fsdp {

namespace {

std::int64_t largest_heap(std::span<const OptimizerRun> runs) {
    std::int64_t largest = 0;
    for (const OptimizerRun &run : runs)
        if (run.elements > stack_elements) largest = std::max(largest, run.elements);
    return largest;
}

}  // namespace

bool fits_stack(const Group &group) {
    return group.kind.concurrent != 0 && group.kind.matrix == nullptr &&
           group.block_elements >= 0 && group.block_elements <= max_stack_block;
}

std::int64_t heap_elements(const Spec &spec, const ModelPlan &plan, int position) {
    if (spec.options().master_type == VESCOMM_F32 || std::ranges::all_of(spec.groups(), fits_stack))
        return 0;
    const auto runs = divide_runs(make_runs(spec, plan, position), spec, divided_stack_elements);
    return largest_heap(runs);
}

NarrowMasters::NarrowMasters(const Spec &spec, std::span<const OptimizerRun> runs)
    : type_(spec.options().master_type) {
    if (!narrow()) return;
    if (const std::int64_t elements = largest_heap(runs); elements > 0)
        heap_ = AlignedBytes(static_cast<std::size_t>(elements) * sizeof(float), spec.allocator());
    if (spec.options().master_rounding != VESCOMM_FSDP_ROUND_STOCHASTIC) return;
    round_ = rounding_loop(type_);
    for (std::size_t id = 0; id < spec.parameters().size(); ++id)
        keys_.push_back(spec.random_key(id));
}

void NarrowMasters::widen(const OptimizerRun &run, const std::byte *masters, float *copy) const {
    internal::kernels().convert(copy, VESCOMM_F32, masters, type_,
                                static_cast<std::size_t>(run.elements));
}

void NarrowMasters::round(const OptimizerRun &run, const float *copy, std::byte *masters,
                          std::int64_t step) const {
    auto *to = reinterpret_cast<std::uint16_t *>(masters);
    // Padding between pieces stays zero.
    for (const vescomm_optimizer_piece_t &piece : run.pieces) {
        const auto count = static_cast<std::size_t>(piece.elements);
        if (round_ != nullptr)
            round_(to + piece.offset, copy + piece.offset, count, stream(piece.parameter, step),
                   static_cast<std::uint64_t>(piece.first));
        else
            internal::kernels().convert(to + piece.offset, type_, copy + piece.offset, VESCOMM_F32,
                                        count);
    }
}

}  // namespace vescomm::fsdp
