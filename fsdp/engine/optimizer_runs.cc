// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/optimizer_runs.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vescomm::fsdp {

namespace {

// The number of elements from the beginning of a piece to the end of the block that has the element
// number `wanted`, counted from 1. Blocks are counted within their matrix.
std::int64_t whole_blocks(const vescomm_optimizer_piece_t &piece, std::int64_t wanted,
                          std::int64_t block) {
    const std::int64_t matrix = piece.rows * piece.columns;
    const std::int64_t length =
        block < 0 ? matrix : std::min(std::max<std::int64_t>(block, 1), matrix);
    const std::int64_t last = piece.first + wanted - 1;  // in the parameter
    const std::int64_t begin = last / matrix * matrix;  // of its matrix
    const std::int64_t end = (last - begin) / length * length + length;
    return begin + std::min(end, matrix) - piece.first;
}

// Begins a part of a run with the rest of one of its pieces.
OptimizerRun part_from(const OptimizerRun &run, const vescomm_optimizer_piece_t &piece) {
    OptimizerRun part;
    part.group = run.group;
    part.bucket = run.bucket;
    part.offset = run.offset + piece.offset;
    part.block = run.block + piece.block;
    return part;
}

// Moves the first elements of a piece of a run to a part of the run.
void move_elements(const OptimizerRun &run, vescomm_optimizer_piece_t &piece, OptimizerRun &part,
                   std::int64_t elements, std::int64_t block) {
    vescomm_optimizer_piece_t own = piece;
    own.offset = run.offset + piece.offset - part.offset;
    own.elements = elements;
    own.block = run.block + piece.block - part.block;
    part.pieces.push_back(own);
    part.elements = own.offset + own.elements;
    piece.block += blocks_of(own, block);
    piece.first += elements;
    piece.offset += elements;
    piece.elements -= elements;
}

}  // namespace

std::vector<OptimizerRun> make_runs(const Spec &spec, const ModelPlan &plan, int position) {
    std::vector<OptimizerRun> runs;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        if (!plan.buckets[bucket].trainable) continue;
        for (vescomm_optimizer_piece_t piece : plan.buckets[bucket].pieces(position)) {
            const std::size_t group = *spec.parameters()[piece.parameter].group;
            if (runs.empty() || runs.back().bucket != bucket || runs.back().group != group)
                runs.push_back({group, bucket, piece.offset, 0, {}, {}, piece.block});
            OptimizerRun &run = runs.back();
            piece.offset -= run.offset;
            piece.block -= run.block;
            run.elements = piece.offset + piece.elements;
            run.pieces.push_back(piece);
        }
    }
    return runs;
}

std::vector<OptimizerRun> divide_run(const OptimizerRun &run, std::int64_t elements,
                                     std::int64_t block) {
    std::vector<OptimizerRun> parts;
    for (vescomm_optimizer_piece_t piece : run.pieces)
        while (piece.elements > 0) {
            // With the padding before the piece.
            const auto used = [&] { return run.offset + piece.offset - parts.back().offset; };
            if (parts.empty() || used() >= elements) parts.push_back(part_from(run, piece));
            OptimizerRun &part = parts.back();
            const std::int64_t more = whole_blocks(piece, elements - used(), block);
            move_elements(run, piece, part, std::min(piece.elements, more), block);
        }
    return parts;
}

std::vector<OptimizerRun> divide_matrices(const OptimizerRun &run, std::int64_t block) {
    std::vector<OptimizerRun> parts;
    for (vescomm_optimizer_piece_t piece : run.pieces) {
        const bool matrix = (piece.flags & VESCOMM_FSDP_MATRIX) != 0;
        while (piece.elements > 0) {
            if (parts.empty() || matrix || parts.back().matrix) {
                parts.push_back(part_from(run, piece));
                parts.back().matrix = matrix;
            }
            move_elements(run, piece, parts.back(),
                          matrix ? piece.rows * piece.columns : piece.elements, block);
        }
    }
    return parts;
}

std::vector<OptimizerRun> divide_runs(std::vector<OptimizerRun> &&runs, const Spec &spec,
                                      std::int64_t elements) {
    std::vector<OptimizerRun> divided;
    for (OptimizerRun &run : runs) {
        const Group &group = spec.groups()[run.group];
        std::vector<OptimizerRun> parts;
        if (group.kind.matrix != nullptr) parts = divide_matrices(run, group.block_elements);
        else parts.push_back(std::move(run));
        for (OptimizerRun &part : parts) {
            if (elements == 0 || part.matrix || group.kind.concurrent == 0) {
                divided.push_back(std::move(part));
            } else {
                std::ranges::move(divide_run(part, elements, group.block_elements),
                                  std::back_inserter(divided));
            }
        }
    }
    return divided;
}

std::vector<OptimizerRun> divide_for_device(std::vector<OptimizerRun> &&runs, const Spec &spec) {
    std::vector<OptimizerRun> divided;
    for (OptimizerRun &run : runs) {
        const Group &group = spec.groups()[run.group];
        if (group.kind.device_matrix == nullptr) divided.push_back(std::move(run));
        else
            std::ranges::move(divide_matrices(run, group.block_elements),
                              std::back_inserter(divided));
    }
    return divided;
}

}  // namespace vescomm::fsdp
