// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A reference solution of the layout problem by its definition, for small problems: it tries every
// element, every start and every cut. It shares no code with the planner.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "vescomm/planner.hpp"

namespace vescomm::planner::reference {

inline std::int64_t product(const std::vector<std::int64_t> &shape, std::size_t first,
                            std::size_t last) {
    std::int64_t result = 1;
    for (std::size_t i = first; i < last; ++i) result *= shape[i];
    return result;
}

inline std::int64_t elements(const Tensor &tensor) {
    return product(tensor.shape, 0, tensor.shape.size());
}

// Returns true if a cut may lie before element i of the tensor.
inline bool may_cut(const Tensor &tensor, std::int64_t i) {
    const auto batch = static_cast<std::size_t>(tensor.batch_dimensions);
    const std::size_t dimensions = tensor.shape.size();
    const std::int64_t matrix = product(tensor.shape, batch, dimensions);
    const std::int64_t row = batch < dimensions ? product(tensor.shape, batch + 1, dimensions) : 1;
    const std::int64_t within = i % matrix;
    if (tensor.block_rows == -1) return within == 0;
    return within % row == 0 && within / row % std::max<std::int64_t>(tensor.block_rows, 1) == 0;
}

// Returns the elements of the largest block.
inline std::int64_t block(const Tensor &tensor) {
    const auto batch = static_cast<std::size_t>(tensor.batch_dimensions);
    const std::size_t dimensions = tensor.shape.size();
    const std::int64_t matrix = product(tensor.shape, batch, dimensions);
    if (tensor.block_rows == -1) return matrix;
    const std::int64_t row = batch < dimensions ? product(tensor.shape, batch + 1, dimensions) : 1;
    return std::min(matrix, std::max<std::int64_t>(tensor.block_rows, 1) * row);
}

inline std::vector<bool> legal_cuts(const Tensor &tensor) {
    std::vector<bool> legal;
    for (std::int64_t i = 0; i < elements(tensor); ++i) legal.push_back(may_cut(tensor, i));
    return legal;
}

// Returns true if the tensors fit in this order into equal shards. Tries every start of every
// tensor.
inline bool fits_uniform(const std::vector<std::vector<bool>> &tensors, std::int64_t shard,
                         std::int64_t ranks, const std::vector<std::int64_t> &alignments) {
    std::vector<bool> reached(static_cast<std::size_t>(ranks * shard) + 1, false);  // as an end
    reached[0] = true;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::vector<bool> &legal = tensors[i];
        const auto size = static_cast<std::int64_t>(legal.size());
        std::vector<bool> next(reached.size(), false);
        bool free = false;
        for (std::int64_t start = 0; start + size <= ranks * shard; ++start) {
            free = free || reached[start];  // the previous tensor can end here or earlier
            if (!free || start % alignments[i] != 0) continue;
            bool good = true;
            for (std::int64_t cut = (start / shard + 1) * shard; cut < start + size; cut += shard) {
                good = good && legal[cut - start];
            }
            if (good) next[start + size] = true;
        }
        reached = next;
    }
    return std::find(reached.begin(), reached.end(), true) != reached.end();
}

inline bool fits_uniform(const std::vector<std::vector<bool>> &tensors, std::int64_t shard,
                         std::int64_t ranks, std::int64_t alignment) {
    return fits_uniform(tensors, shard, ranks, std::vector(tensors.size(), alignment));
}

// Returns the smallest largest shard, rounded up to `unit`, for tensors one after another.
inline std::int64_t smallest_ragged(const std::vector<std::vector<bool>> &tensors, int ranks,
                                    std::int64_t alignment, std::int64_t unit) {
    std::vector<bool> legal;
    for (const std::vector<bool> &tensor : tensors) {
        while (static_cast<std::int64_t>(legal.size()) % alignment != 0) legal.push_back(true);
        legal.insert(legal.end(), tensor.begin(), tensor.end());
    }
    legal.push_back(true);
    constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
    std::vector<std::int64_t> best(legal.size(),
                                   never);  // for a cut there, with k shards before it
    best[0] = 0;
    for (int k = 0; k < ranks; ++k) {
        std::vector<std::int64_t> next(legal.size(), never);
        for (std::size_t end = 0; end < legal.size(); ++end) {
            if (!legal[end]) continue;
            for (std::size_t begin = 0; begin <= end; ++begin) {
                if (best[begin] == never) continue;
                const auto shard = static_cast<std::int64_t>(end - begin);
                const std::int64_t rounded = (shard + unit - 1) / unit * unit;
                next[end] = std::min(next[end], std::max(best[begin], rounded));
            }
        }
        best = next;
    }
    return best.back();
}

// Checks all figures and properties of an answer against the definition.
inline void expect_valid(const Problem &problem, const Options &options, const Answer &answer) {
    ASSERT_TRUE(answer.feasible) << answer.explanation;
    ASSERT_EQ(answer.cuts.size(), static_cast<std::size_t>(problem.ranks) + 1);
    EXPECT_EQ(answer.cuts.front(), 0);
    EXPECT_EQ(answer.cuts.back(), answer.elements);
    std::int64_t largest = 0;
    for (std::size_t k = 1; k < answer.cuts.size(); ++k) {
        ASSERT_LE(answer.cuts[k - 1], answer.cuts[k]);
        largest = std::max(largest, answer.cuts[k] - answer.cuts[k - 1]);
        if (options.mode == Mode::uniform) {
            EXPECT_EQ(answer.cuts[k] - answer.cuts[k - 1], answer.largest_shard);
        }
    }
    EXPECT_EQ(largest, answer.largest_shard);
    EXPECT_LE(answer.lower_bound, answer.largest_shard);
    EXPECT_LE(answer.lower_bound_over_share, answer.largest_over_share);
    if (options.shard_limit > 0) {
        EXPECT_LE(answer.largest_shard, options.shard_limit);
    }

    ASSERT_EQ(answer.places.size(), problem.tensors.size());
    std::vector<bool> seen(problem.tensors.size(), false);
    std::int64_t end = 0;
    std::int64_t all_elements = 0;
    for (const Place &place : answer.places) {
        ASSERT_LT(place.tensor, problem.tensors.size());
        EXPECT_FALSE(seen[place.tensor]);
        seen[place.tensor] = true;
        const Tensor &tensor = problem.tensors[place.tensor];
        const std::int64_t size = elements(tensor);
        ASSERT_GE(place.offset, end) << "tensors overlap";
        EXPECT_EQ(place.offset % options.start_alignment, 0);
        EXPECT_EQ(place.offset % std::max<std::int64_t>(tensor.alignment, 1), 0);
        EXPECT_EQ(place.block, size > 0 ? block(tensor) : 1);
        end = place.offset + size;
        ASSERT_LE(end, answer.elements);
        all_elements += size;
        auto cut = std::upper_bound(answer.cuts.begin(), answer.cuts.end(), place.offset);
        for (; cut != answer.cuts.end() && *cut < end; ++cut) {
            ASSERT_TRUE(may_cut(tensor, *cut - place.offset))
                << "cut at " << *cut << " inside " << tensor.name << " at " << place.offset;
        }
    }
    EXPECT_EQ(answer.padding, answer.elements - all_elements);
    EXPECT_DOUBLE_EQ(answer.mean_shard, static_cast<double>(all_elements) / problem.ranks);

    const LayoutPointer layout = make_layout(problem, answer);  // checks the layout again
    vescomm_layout_info_t info = vescomm_layout_info_init();
    ASSERT_EQ(vescomm_layout_get_info(layout.get(), &info), VESCOMM_OK);
    EXPECT_EQ(info.largest, answer.largest_shard);
    EXPECT_EQ(info.padding, answer.padding);
    EXPECT_EQ(info.elements, answer.elements);
    EXPECT_EQ(info.tensors, problem.tensors.size());
}

}  // namespace vescomm::planner::reference
