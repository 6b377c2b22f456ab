// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Threads that update shards together: each job once, runs divided between blocks.
#include "fsdp/engine/update_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "fsdp/engine/optimizer.h"

namespace vescomm::fsdp {
namespace {

TEST(UpdateThreads, CallEachJobOnce) {
    for (const int threads : {1, 2, 3, 7}) {
        UpdateThreads update(threads);
        EXPECT_EQ(update.threads(), threads);
        std::vector<std::atomic<int>> calls(50);
        std::size_t round = 0;
        for (; round < 2000; ++round)
            update.run(round % calls.size(), [&](std::size_t job) { ++calls[job]; });
        for (std::size_t job = 0; job < calls.size(); ++job)
            EXPECT_EQ(calls[job], round / calls.size() * (calls.size() - 1 - job));
    }
}

// Each job waits for the other: one thread alone would never end.
TEST(UpdateThreads, RunJobsAtTheSameTime) {
    UpdateThreads update(3);
    std::atomic<int> begun{0};
    update.run(3, [&](std::size_t) {
        ++begun;
        while (begun < 3) std::this_thread::yield();
    });
    EXPECT_EQ(begun, 3);
}

// Two matrices of 3 rows, a part of a vector, and a parameter of one element.
OptimizerRun run_of_pieces() {
    OptimizerRun run{1, 2, 1000, 64, {}, {}, 5};
    const auto add = [&](std::int64_t offset, std::int64_t first, std::int64_t elements,
                         std::int64_t rows, std::int64_t columns) {
        vescomm_optimizer_piece_t piece = vescomm_optimizer_piece_init();
        piece.parameter = run.pieces.size();
        piece.offset = offset;
        piece.first = first;
        piece.elements = elements;
        piece.rows = rows;
        piece.columns = columns;
        run.pieces.push_back(piece);
    };
    add(3, 21, 42, 3, 7);
    add(45, 40, 11, 100, 1);
    add(60, 0, 1, 1, 1);
    return run;
}

// True if a piece may be cut before an element of its parameter.
bool may_cut(const vescomm_optimizer_piece_t &piece, std::int64_t element, std::int64_t block) {
    const std::int64_t matrix = piece.rows * piece.columns;
    return element % matrix % (block == -1 ? matrix : std::max<std::int64_t>(block, 1)) == 0;
}

TEST(UpdateThreads, DivideRunsBetweenBlocks) {
    OptimizerRun run = run_of_pieces();
    for (const std::int64_t block : {-1, 0, 1, 2, 5, 7, 10, 1000}) {
        std::int64_t blocks = 0;
        for (vescomm_optimizer_piece_t &piece : run.pieces) {
            piece.block = blocks;
            blocks += blocks_of(piece, block);
        }
        for (std::int64_t length = 1; length <= 70; ++length) {
            SCOPED_TRACE(std::to_string(length) + " elements, blocks of " + std::to_string(block));
            std::vector<std::int64_t> seen(run.pieces.size());
            std::int64_t end = 0;
            const auto parts = divide_run(run, length, block);
            for (const OptimizerRun &part : parts) {
                EXPECT_EQ(part.group, 1);
                EXPECT_EQ(part.bucket, 2);
                const std::int64_t begin = part.offset - run.offset;
                EXPECT_GE(begin, end);
                end = begin + part.elements;
                if (&part != &parts.back()) {
                    EXPECT_GE((&part + 1)->offset - part.offset, length);
                }
                ASSERT_FALSE(part.pieces.empty());
                EXPECT_EQ(part.pieces.front().offset, 0);
                for (const vescomm_optimizer_piece_t &piece : part.pieces) {
                    const vescomm_optimizer_piece_t &whole = run.pieces[piece.parameter];
                    EXPECT_EQ(piece.first, whole.first + seen[piece.parameter]);
                    EXPECT_EQ(begin + piece.offset, whole.offset + seen[piece.parameter]);
                    EXPECT_EQ(part.block - run.block + piece.block,
                              whole.block +
                                  blocks_before(piece.first, piece.rows * piece.columns, block) -
                                  blocks_before(whole.first, piece.rows * piece.columns, block));
                    EXPECT_GT(piece.elements, 0);
                    seen[piece.parameter] += piece.elements;
                    if (seen[piece.parameter] < whole.elements) {
                        EXPECT_TRUE(may_cut(piece, piece.first + piece.elements, block));
                    }
                    EXPECT_LE(piece.offset + piece.elements, part.elements);
                }
                if (block >= 0) {
                    EXPECT_LT(part.elements, length + std::max<std::int64_t>(block, 1));
                }
            }
            for (std::size_t i = 0; i < seen.size(); ++i)
                EXPECT_EQ(seen[i], run.pieces[i].elements);
        }
    }
}

}  // namespace
}  // namespace vescomm::fsdp
