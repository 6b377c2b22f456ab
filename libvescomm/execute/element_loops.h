// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "execute/bindings.h"
#include "execute/kernels.h"
#include "execute/program.h"

namespace vescomm::internal {

// The loops over the elements of an operation's copies and reductions.
class ElementLoops {
public:
    // `max_sources`: of a reduction.
    ElementLoops(const ReductionBinding &reduction, std::size_t max_sources)
        : reduction_(reduction), pointers_(max_sources), factors_(max_sources, reduction.factor) {}

    // `streaming`: bypass the caches.
    void copy(const BoundStep &step, std::byte *to, const std::byte *from,
              bool streaming) const noexcept {
        kernels_.convert(to, step.to_type, from, step.from_type, step.count, streaming);
    }

    // The loop that alone performs a reduction of contributions.
    struct SingleLoop {
        Fold *run = nullptr;  // nullptr: reduce() is needed
        double scale = 1;
    };
    SingleLoop single_loop(const BoundStep &step) const noexcept {
        if (step.sum.started || step.sum.partials > 0) return {};
        const Reduction how{.op = reduction_.op,
                            .divisor = step.sum.finish ? reduction_.divisor : 1};
        return {
            .run = kernels_.single_loop(how, step.sum.contributions, step.from_type, step.to_type),
            .scale = 1.0 / how.divisor};
    }
    // `at(i)` is the first byte of contribution i.
    template <typename At>
    void reduce(const SingleLoop &loop, std::size_t contributions, std::byte *to, std::size_t count,
                At at) noexcept {
        for (std::size_t i = 0; i < contributions; ++i) pointers_[i] = at(i);
        loop.run({.sources = pointers_.data(),
                  .n = static_cast<int>(contributions),
                  .first = 0,
                  .start = nullptr,
                  .factors = reduction_.op == VESCOMM_PREMULTIPLIED_SUM ? factors_.data() : nullptr,
                  .scale = loop.scale,
                  .to = to,
                  .count = count});
    }

    // `at(source, bytes)` is the first of the bytes that the step reads of a source.
    template <typename At>
    void reduce(const BoundLane &lane, const BoundStep &step, std::byte *to, At at) noexcept {
        const std::size_t started = step.sum.started ? 1 : 0;
        const std::size_t count = started + step.sum.contributions + step.sum.partials;
        const std::uint64_t bytes = step.count * size_of(step.from_type);
        for (std::size_t i = 0; i < count; ++i)
            pointers_[i] = at(lane.sources[step.sum.first_source + i], bytes);
        const auto pointers =
            std::span<const void *const>(pointers_).subspan(started, count - started);
        kernels_.reduce(
            {.op = reduction_.op,
             .divisor = step.sum.finish ? reduction_.divisor : 1,
             .factors = reduction_.op == VESCOMM_PREMULTIPLIED_SUM ? factors_.data() : nullptr,
             .start = step.sum.started ? pointers_[0] : nullptr},
            pointers.first(step.sum.contributions), step.from_type,
            pointers.subspan(step.sum.contributions), to, step.to_type, step.count);
    }

private:
    const ReductionBinding &reduction_;
    const Kernels &kernels_ = kernels();
    std::vector<const void *> pointers_;  // sources of a reduction
    std::vector<double> factors_;  // same size as pointers_
};

}  // namespace vescomm::internal
