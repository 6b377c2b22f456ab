// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that save and load a model, as threads of this process.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/checkpoint/agreement.h"
#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/load.h"
#include "fsdp/checkpoint/save.h"
#include "fsdp/checkpoint/save_job.h"
#include "planner/formats/element_types.h"

namespace vescomm::fsdp::checkpoint::testing_support {

namespace fs = std::filesystem;

// An empty folder that is removed at the end. It is in memory where that is possible: these tests
// call fsync() a hundred thousand times.
class TemporaryFolder {
public:
    TemporaryFolder() {
        const bool in_memory = access("/dev/shm", W_OK | X_OK) == 0;
        const fs::path parent = in_memory ? fs::path("/dev/shm") : fs::temp_directory_path();
        std::string pattern = (parent / "vescomm-checkpoint-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
        path_ = pattern;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;

    std::string path(const std::string &name) const { return (path_ / name).string(); }

private:
    fs::path path_;
};

inline std::string read_text(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_text(const std::string &path, const std::string &text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// The contents of a SaveJob.
inline std::function<SaveJob::Contents()> contents_of(std::span<const Piece> pieces,
                                                      const std::vector<Extra> &extras = {}) {
    return [=] { return SaveJob::Contents{{pieces.begin(), pieces.end()}, extras}; };
}

// The place where the threads of one job meet.
class Meeting {
public:
    explicit Meeting(int ranks) : texts_(static_cast<std::size_t>(ranks)) {}

    int ranks() const { return static_cast<int>(texts_.size()); }

    std::vector<std::string> all_gather(int rank, const std::string &mine) {
        std::unique_lock lock(mutex_);
        texts_[static_cast<std::size_t>(rank)] = mine;
        const std::uint64_t round = round_;
        if (++arrived_ == ranks()) {
            arrived_ = 0;
            ++round_;
            gathered_ = texts_;
            changed_.notify_all();
        }
        const bool complete = changed_.wait_for(lock, std::chrono::seconds(60),
                                                [&] { return round_ != round || ended_; });
        if (!complete || round_ == round)
            throw Error(VESCOMM_ERROR_PEER_FAILED, "another rank has ended");
        return gathered_;
    }

    // Ends the waits of all ranks.
    void end() {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::string> texts_;
    std::vector<std::string> gathered_;
    std::uint64_t round_ = 0;
    int arrived_ = 0;
    bool ended_ = false;
};

class ThreadAgreement final : public Agreement {
public:
    ThreadAgreement(std::shared_ptr<Meeting> meeting, int rank)
        : meeting_(std::move(meeting)), rank_(rank) {}

    int rank() const override { return rank_; }
    int ranks() const override { return meeting_->ranks(); }
    std::vector<std::string> all_gather(const std::string &mine) override {
        return meeting_->all_gather(rank_, mine);
    }

private:
    std::shared_ptr<Meeting> meeting_;
    int rank_;
};

// Runs `body` once for each rank, in a thread of its own. Returns the error sentence of each rank,
// or "" for a rank that has none.
inline std::vector<std::string> run_ranks(int ranks,
                                          const std::function<void(ThreadAgreement &)> &body) {
    const auto meeting = std::make_shared<Meeting>(ranks);
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            ThreadAgreement agreement(meeting, rank);
            try {
                body(agreement);
            } catch (const std::exception &error) {
                errors[static_cast<std::size_t>(rank)] = error.what();
                if (errors[static_cast<std::size_t>(rank)].empty())
                    errors[static_cast<std::size_t>(rank)] = "an error without a sentence";
            }
        });
    for (std::thread &thread : threads) thread.join();
    return errors;
}

// Tensors of every kind: matrices, vectors, scalars, without elements, of all sizes of types.
inline std::vector<Tensor> model_of_all_types() {
    return {
        {"layers.0.w", "master", {7, 33}, VESCOMM_F32},
        {"layers.0.w", "moment1", {7, 33}, VESCOMM_F32},
        {"layers.0.w", "moment2", {7, 33}, VESCOMM_BF16},
        {"layers.1.w", "master", {128, 3, 5}, VESCOMM_BF16},
        {"layers.1.half", "master", {19}, VESCOMM_F16},
        {"counts", "state", {11}, VESCOMM_I64},
        {"bytes", "state", {257}, VESCOMM_U8},
        {"mask", "state", {3, 3}, VESCOMM_BOOL},
        {"scalar", "master", {}, VESCOMM_F32},
        {"empty", "master", {4, 0, 3}, VESCOMM_F32},
        {"f64", "state", {1, 1, 2}, VESCOMM_F64},
        {"name with \"quotes\" / and \xc3\xbc", "master", {5}, VESCOMM_F32},
    };
}

inline std::int64_t elements_of(const Tensor &tensor) {
    return *formats::count_elements(tensor.shape);
}

// Returns elements [first, first + count) of a tensor: bytes that depend on the tensor, the element
// and `version`. Bools are 0 or 1.
inline std::string values_of(const Tensor &tensor, std::int64_t first, std::int64_t count,
                             unsigned version = 0) {
    const auto size = static_cast<std::uint64_t>(formats::bytes_of(tensor.type));
    const std::uint64_t salt =
        std::hash<std::string>()(tensor.role + "/" + tensor.name) + 977 * version;
    std::string bytes;
    for (std::uint64_t i = static_cast<std::uint64_t>(first) * size;
         i < static_cast<std::uint64_t>(first + count) * size; ++i) {
        const std::uint64_t mixed = (i + salt) * 0x9e3779b97f4a7c15u;
        const auto byte = static_cast<unsigned char>(mixed >> 56);
        bytes += static_cast<char>(tensor.type == VESCOMM_BOOL ? byte & 1 : byte);
    }
    return bytes;
}

struct Interval {
    std::int64_t first = 0;
    std::int64_t count = 0;
};

// The intervals of one tensor on one rank: ragged, often empty, sometimes several. The intervals of
// all ranks cover the tensor, for one seed.
inline std::vector<Interval> random_intervals(const Tensor &tensor, int rank, int ranks,
                                              unsigned seed) {
    std::mt19937 random(seed ^ static_cast<unsigned>(std::hash<std::string>()(tensor.name)));
    const auto elements = static_cast<unsigned>(elements_of(tensor));
    std::vector<std::vector<Interval>> intervals(static_cast<std::size_t>(ranks));
    std::vector<std::int64_t> cuts = {0, elements};
    const unsigned pieces = static_cast<unsigned>(ranks) + random() % 3;
    for (unsigned i = 1; i < pieces; ++i) cuts.push_back(random() % (elements + 1));
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
        intervals[random() % intervals.size()].push_back({cuts[i], cuts[i + 1] - cuts[i]});
    return intervals[static_cast<std::size_t>(rank)];
}

// The pieces of one rank, and their bytes.
struct OwnedPieces {
    std::vector<Piece> pieces;
    std::vector<std::unique_ptr<std::string>> bytes;

    void add(const Tensor &tensor, Interval interval, unsigned version = 0) {
        bytes.push_back(std::make_unique<std::string>(
            values_of(tensor, interval.first, interval.count, version)));
        pieces.push_back({tensor, interval.first, interval.count, bytes.back()->data()});
    }
};

inline OwnedPieces pieces_of_rank(const std::vector<Tensor> &model, int rank, int ranks,
                                  unsigned seed, unsigned version = 0) {
    OwnedPieces owned;
    for (const Tensor &tensor : model)
        for (const Interval &interval : random_intervals(tensor, rank, ranks, seed))
            owned.add(tensor, interval, version);
    return owned;
}

// Chunks that are shorter than most tensors, so that reads begin and end within chunks.
inline SaveOptions small_chunks() {
    SaveOptions options;
    options.checksum_bytes = 24;
    return options;
}

// Saves the model with one extra for each rank, and the version of the values as another.
inline std::vector<std::string> save_at(const std::string &folder, int ranks,
                                        const std::vector<Tensor> &model, unsigned seed,
                                        unsigned version = 0,
                                        const SaveOptions &options = small_chunks(),
                                        SystemCalls &calls = system_calls()) {
    return run_ranks(ranks, [&](ThreadAgreement &agreement) {
        const int rank = agreement.rank();
        const OwnedPieces owned = pieces_of_rank(model, rank, ranks, seed, version);
        std::vector<Extra> extras = {
            {"random." + std::to_string(rank), std::string(static_cast<std::size_t>(rank), '\7')}};
        if (rank == 0) extras.push_back({"version", std::to_string(version)});
        SaveContext context;
        context.calls = &calls;
        save(folder, owned.pieces, extras, agreement, options, context);
    });
}

// Loads the model on each rank, in other intervals, and compares every byte.
inline void expect_loads_at(const std::string &folder, int ranks, const std::vector<Tensor> &model,
                            unsigned seed, unsigned version = 0) {
    const std::vector<std::string> errors = run_ranks(ranks, [&](ThreadAgreement &agreement) {
        Checkpoint checkpoint(SavePath{folder, agree_on_latest(folder, agreement)});
        std::vector<WantedPiece> wanted;
        std::vector<std::unique_ptr<std::string>> loaded;
        for (const Tensor &tensor : model)
            for (const Interval &interval :
                 random_intervals(tensor, agreement.rank(), ranks, seed)) {
                const auto bytes =
                    static_cast<std::size_t>(interval.count * formats::bytes_of(tensor.type));
                loaded.push_back(std::make_unique<std::string>(bytes, '\xee'));
                wanted.push_back({tensor, interval.first, interval.count, loaded.back()->data()});
            }
        checkpoint.read(wanted);
        for (std::size_t i = 0; i < wanted.size(); ++i)
            EXPECT_TRUE(*loaded[i] ==
                        values_of(wanted[i].tensor, wanted[i].first, wanted[i].count, version))
                << describe(wanted[i].tensor) << " from element " << wanted[i].first;
        EXPECT_EQ(checkpoint.extra("version"), std::to_string(version));
    });
    for (const std::string &error : errors) EXPECT_EQ(error, "");
}

}  // namespace vescomm::fsdp::checkpoint::testing_support
