// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/gather_codes.h"

#include <algorithm>

#include "fsdp/error.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

namespace {

// Elements of a run. Ranks of a node share the runs of a unit, so there are several for each rank.
constexpr std::int64_t max_run = 1 << 15;

constexpr std::int64_t align_to_scales(std::int64_t bytes) {
    return (bytes + 3) / 4 * 4;
}

std::int64_t blocks_in(std::int64_t elements, std::int64_t block) {
    return (elements + block - 1) / block;
}

// Adds the runs of one rank.
class Runs {
public:
    Runs(GatherCodes &codes, std::int64_t shard_begin, std::int64_t shard)
        : codes_(codes),
          shard_begin_(shard_begin),
          begin_(codes.cuts.back()),
          scales_(begin_ + align_to_scales(shard)) {
        codes.first_run.push_back(codes.runs.size());
    }

    // Elements in which blocks begin again after each `period`.
    void add(std::int64_t offset, std::int64_t elements, const GatherGrid &grid) {
        const bool whole_periods = grid.kept <= max_run;
        const std::int64_t unit = whole_periods ? grid.kept : grid.block;
        const std::int64_t step = std::max<std::int64_t>(max_run / unit, 1) * unit;
        for (std::int64_t first = 0; first < elements;) {
            std::int64_t end = std::min(first + step, elements);
            // A run that is less than a period does not go beyond it.
            if (!whole_periods) end = std::min(end, (first / grid.kept + 1) * grid.kept);
            push(offset + first, end - first, whole_periods ? grid.kept : end - first, grid.block);
            first = end;
        }
    }

    void finish() { codes_.cuts.push_back(scales_); }

private:
    void push(std::int64_t offset, std::int64_t elements, std::int64_t period, std::int64_t block) {
        GatherRun run;
        run.offset = offset;
        run.elements = elements;
        run.period = period;
        run.block = block;
        run.codes = static_cast<std::uint64_t>(begin_ + offset - shard_begin_);
        run.scales = static_cast<std::uint64_t>(scales_);
        const std::int64_t scales =
            elements / period * blocks_in(period, block) + blocks_in(elements % period, block);
        scales_ += scales * static_cast<std::int64_t>(sizeof(float));
        codes_.runs.push_back(run);
    }

    GatherCodes &codes_;
    std::int64_t shard_begin_;
    std::int64_t begin_;
    std::int64_t scales_;
};

}  // namespace

GatherGrid gather_grid(const Parameter &parameter, std::int64_t max_block) {
    GatherGrid grid;
    grid.segment = parameter.rows() * parameter.columns();
    if (grid.segment == 0) return {};
    const std::int64_t own = parameter.block();
    grid.factor = std::max<std::int64_t>(max_block / own, 1);
    grid.kept = std::min(own * grid.factor, grid.segment);
    grid.block = std::min(grid.kept, max_block);
    return grid;
}

bool codes_are_smaller(const Parameter &parameter, std::int64_t max_block, vescomm_type_t type) {
    if (vescomm_type_get_bytes(type) == 1) return false;
    if (parameter.batch_dimensions == 0) return true;
    const std::int64_t segment = gather_grid(parameter, max_block).segment;
    constexpr std::int64_t scale_bytes = sizeof(float);
    return segment >= max_block ||
           segment + scale_bytes <
               segment * static_cast<std::int64_t>(vescomm_type_get_bytes(type));
}

GatherCodes gather_codes(const Spec &spec, const Bucket &bucket) {
    GatherCodes codes;
    codes.cuts.push_back(0);
    for (std::size_t rank = 0; rank + 1 < bucket.cuts.size(); ++rank) {
        const int position = static_cast<int>(rank) * bucket.expert_ranks;
        Runs runs(codes, bucket.cuts[rank], bucket.shard(position));
        for (const vescomm_optimizer_piece_t &piece : bucket.pieces(position)) {
            const GatherGrid grid =
                gather_grid(spec.parameters()[piece.parameter], spec.options().gather_block);
            if (piece.first % grid.segment % grid.kept != 0)
                throw Failure(VESCOMM_ERROR_INTERNAL,
                              fmt::format("the plan cuts a block of parameter \"{}\" at element "
                                          "{}; please report",
                                          spec.full_name(piece.parameter), piece.first));
            const std::int64_t offset = bucket.cuts[rank] + piece.offset;
            if (grid.segment % grid.kept == 0) {
                runs.add(offset, piece.elements, grid);
                continue;
            }
            for (std::int64_t done = 0; done < piece.elements;) {
                const std::int64_t left = grid.segment - (piece.first + done) % grid.segment;
                const std::int64_t count = std::min(left, piece.elements - done);
                runs.add(offset + done, count, grid);
                done += count;
            }
        }
        runs.finish();
    }
    codes.first_run.push_back(codes.runs.size());
    return codes;
}

}  // namespace vescomm::fsdp
