// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Threads that update shards together: each job once, runs divided at multiples.
#include "fsdp/engine/update_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

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

TEST(UpdateThreads, DivideRunsAtMultiples) {
    OptimizerRun run{1, 2, 1000, 64, {}, {}};
    for (const auto &[offset, elements] : {std::pair{3, 2}, {10, 25}, {60, 4}}) {
        vescomm_optimizer_piece_t piece = vescomm_optimizer_piece_init();
        piece.parameter = static_cast<std::uint64_t>(offset);
        piece.first = 100;
        piece.offset = offset;
        piece.elements = elements;
        run.pieces.push_back(piece);
    }
    for (std::int64_t length = 1; length <= 70; ++length) {
        std::set<std::pair<std::uint64_t, std::int64_t>> seen;  // parameter, element
        std::int64_t end = 0;
        for (const OptimizerRun &part : divide_run(run, length)) {
            EXPECT_EQ(part.group, 1);
            EXPECT_EQ(part.bucket, 2);
            const std::int64_t begin = part.offset - 1000;
            EXPECT_EQ(begin % length, 0);
            EXPECT_GE(begin, end);
            end = begin + part.elements;
            EXPECT_EQ(end, std::min(begin + length, std::int64_t{64}));
            EXPECT_FALSE(part.pieces.empty());
            for (const vescomm_optimizer_piece_t &piece : part.pieces) {
                EXPECT_GE(piece.offset, 0);
                EXPECT_LE(piece.offset + piece.elements, part.elements);
                for (std::int64_t i = 0; i < piece.elements; ++i) {
                    EXPECT_TRUE(seen.emplace(piece.parameter, piece.first + i).second);
                    EXPECT_EQ(begin + piece.offset - static_cast<std::int64_t>(piece.parameter),
                              piece.first - 100);
                }
            }
        }
        EXPECT_EQ(seen.size(), 31);
    }
}

}  // namespace
}  // namespace vescomm::fsdp
