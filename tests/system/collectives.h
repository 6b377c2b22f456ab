// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A random sequence of all operations on buffers with ragged layouts. All results are compared with
// expected values. All ranks draw the same random numbers, so all make the same calls.
#pragma once

#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <vescomm/vescomm.hpp>

namespace system_test {

// Small whole numbers. Their sums are exact in any order: in f32, and for up to 16 ranks in bf16.
inline float value(int rank, std::int64_t element, int run) {
    return static_cast<float>((element * 7 + rank * 3 + run * 5) % 13 - 6);
}

inline float sum_of(int ranks, std::int64_t element, int run) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(rank, element, run);
    return sum;
}

// Stores an f32 value as an element of any of the types that the sequence uses.
inline void store(vescomm_type_t type, void *data, std::int64_t element, float x) {
    if (type == VESCOMM_BF16) {
        std::uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        static_cast<std::uint16_t *>(data)[element] = static_cast<std::uint16_t>(bits >> 16);
    } else if (type == VESCOMM_I64) {
        static_cast<std::int64_t *>(data)[element] = static_cast<std::int64_t>(x);
    } else if (type == VESCOMM_U8) {
        static_cast<std::uint8_t *>(data)[element] = static_cast<std::uint8_t>(x + 6);
    } else {
        static_cast<float *>(data)[element] = x;
    }
}

inline float load(vescomm_type_t type, const void *data, std::int64_t element) {
    if (type == VESCOMM_BF16) {
        const std::uint32_t bits =
            static_cast<std::uint32_t>(static_cast<const std::uint16_t *>(data)[element]) << 16;
        float x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
    if (type == VESCOMM_I64)
        return static_cast<float>(static_cast<const std::int64_t *>(data)[element]);
    if (type == VESCOMM_U8)
        return static_cast<float>(static_cast<const std::uint8_t *>(data)[element]) - 6;
    return static_cast<const float *>(data)[element];
}

class Collectives {
public:
    Collectives(const vescomm::Communicator &comm, unsigned seed)
        : comm_(comm), rank_(comm.rank()), ranks_(comm.ranks()), random_(seed) {
        constexpr int cases = 4;
        for (int i = 0; i < cases; ++i) cases_.push_back(make_case());
    }

    // Returns the number of operations that were verified.
    int run(int iterations) {
        int verified = 0;
        for (int i = 0; i < iterations; ++i) {
            verified += overlap();
            const int next = draw(8);
            if (next == 0) check_barrier();
            if (next == 1) cases_[draw(static_cast<int>(cases_.size()))] = make_case();
        }
        return verified;
    }

private:
    enum class Kind { gather, convert, reduce, reduce_out, average_out, all_reduce, broadcast };
    static constexpr const char *names[] = {"all_gather_v",     "all_gather_v with a source",
                                            "reduce_scatter_v", "reduce_scatter_v with an output",
                                            "average",          "all_reduce",
                                            "broadcast"};

    struct Case {
        std::vector<std::int64_t> cuts;
        vescomm_type_t type = VESCOMM_F32;
        bool per_node = false;
        vescomm::Buffer buffer;
        // Requests borrow these arrays, so a move of the case must keep their addresses.
        std::vector<float> source, output;
        std::vector<vescomm::Request> requests = std::vector<vescomm::Request>(6 + 64);

        std::int64_t begin(int rank) const { return cuts[static_cast<std::size_t>(rank)]; }
        std::int64_t end(int rank) const { return cuts[static_cast<std::size_t>(rank) + 1]; }
        void *data() const { return buffer.template data<std::byte>().data(); }
    };

    struct Started {
        Case *where;
        Kind kind;
        int root, run;
        vescomm::Request *request;
    };

    int draw(int choices) { return static_cast<int>(random_() % static_cast<unsigned>(choices)); }

    std::vector<std::int64_t> make_counts() {
        const int shape = draw(5);
        const int owner = draw(ranks_);
        std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks_));
        for (int rank = 0; rank < ranks_; ++rank) {
            const auto at = static_cast<std::size_t>(rank);
            if (shape == 0) counts[at] = 64;
            if (shape == 1) counts[at] = rank == owner ? 10'001 : 0;
            if (shape == 2) counts[at] = draw(3) == 0 ? 0 : draw(1'000);
            if (shape >= 3) counts[at] = 2'000 + draw(12'000);
        }
        return counts;
    }

    Case make_case() {
        static constexpr vescomm_type_t types[] = {VESCOMM_F32, VESCOMM_BF16, VESCOMM_U8,
                                                   VESCOMM_I64, VESCOMM_F32,  VESCOMM_BF16};
        Case made;
        const auto counts = make_counts();
        made.cuts.push_back(0);
        for (const std::int64_t count : counts) made.cuts.push_back(made.cuts.back() + count);
        made.type = types[draw(6)];
        made.per_node = draw(3) == 0;
        const std::string name = "case " + std::to_string(made_++);
        vescomm_buffer_options_t options = vescomm_buffer_options_init();
        options.type = made.type;
        options.sharing = made.per_node ? VESCOMM_PER_NODE : VESCOMM_PER_RANK;
        options.name = name.c_str();
        made.buffer = vescomm::Buffer(comm_, vescomm::Layout::from_counts(counts), options);
        const auto mine = static_cast<std::size_t>(made.end(rank_) - made.begin(rank_));
        made.source.resize(mine + 1);
        made.output.resize(mine + 1);
        return made;
    }

    Kind draw_kind(const Case &where) {
        const bool floating = where.type == VESCOMM_F32 || where.type == VESCOMM_BF16;
        for (;;) {
            const Kind kind = static_cast<Kind>(draw(7));
            const bool reduces = kind >= Kind::reduce && kind <= Kind::all_reduce;
            if ((reduces || kind == Kind::convert) && !floating) continue;
            if (reduces && where.per_node) continue;
            return kind;
        }
    }

    vescomm::Request &request_of(Case &where, Kind kind, int root) {
        vescomm::Request &request =
            where.requests[static_cast<std::size_t>(kind) + static_cast<std::size_t>(root)];
        if (request.get() != nullptr) return request;
        vescomm_request_options_t options = vescomm_request_options_init();
        switch (kind) {
            case Kind::convert:
                options.source = where.source.data();
                options.type = VESCOMM_F32;
                [[fallthrough]];
            case Kind::gather:
                request = vescomm::Request::all_gather_v(comm_, where.buffer, options);
                break;
            case Kind::average_out:
                options.op = VESCOMM_AVERAGE;
                [[fallthrough]];
            case Kind::reduce_out:
                options.output = where.output.data();
                options.type = VESCOMM_F32;
                [[fallthrough]];
            case Kind::reduce:
                request = vescomm::Request::reduce_scatter_v(comm_, where.buffer, options);
                break;
            case Kind::all_reduce:
                request = vescomm::Request::all_reduce(comm_, where.buffer, options);
                break;
            case Kind::broadcast:
                options.root = root;
                request = vescomm::Request::broadcast(comm_, where.buffer, options);
                break;
        }
        return request;
    }

    // Starts up to three operations on different buffers and completes them in reverse order.
    int overlap() {
        std::vector<Started> started;
        const int first = draw(static_cast<int>(cases_.size()));
        const int count = 1 + draw(3);
        for (int i = 0; i < count; ++i) {
            Case &where = cases_[static_cast<std::size_t>(first + i) % cases_.size()];
            const Kind kind = draw_kind(where);
            const int root = kind == Kind::broadcast ? draw(ranks_) : 0;
            Started one{&where, kind, root, ++run_, &request_of(where, kind, root)};
            fill(one);
            one.request->start();
            started.push_back(one);
        }
        for (auto one = started.rbegin(); one != started.rend(); ++one) {
            if (one->run % 3 == 0)
                while (!one->request->test()) std::this_thread::yield();
            else one->request->wait();
            verify(*one);
            if (one->where->per_node && one->run % 2 == 0) one->where->buffer.release();
        }
        return count;
    }

    void fill(const Started &one) {
        Case &where = *one.where;
        const std::int64_t begin = where.begin(rank_), end = where.end(rank_);
        if (one.kind == Kind::convert) {
            for (std::int64_t i = begin; i < end; ++i)
                where.source[static_cast<std::size_t>(i - begin)] = value(rank_, i, one.run);
            return;
        }
        if (one.kind == Kind::broadcast && rank_ != one.root) return;
        where.buffer.acquire();
        const bool shard_only = one.kind == Kind::gather;
        for (std::int64_t i = shard_only ? begin : 0; i < (shard_only ? end : where.cuts.back());
             ++i)
            store(where.type, where.data(), i, value(rank_, i, one.run));
    }

    void verify(const Started &one) {
        const Case &where = *one.where;
        const std::int64_t begin = where.begin(rank_), end = where.end(rank_);
        const float scale =
            one.kind == Kind::average_out ? 1.0f / static_cast<float>(ranks_) : 1.0f;
        switch (one.kind) {
            case Kind::gather:
            case Kind::convert:
                for (int owner = 0; owner < ranks_; ++owner)
                    for (std::int64_t i = where.begin(owner); i < where.end(owner); ++i)
                        expect(one, i, load(where.type, where.data(), i), value(owner, i, one.run));
                return;
            case Kind::reduce_out:
            case Kind::average_out:
                for (std::int64_t i = begin; i < end; ++i)
                    expect(one, i, where.output[static_cast<std::size_t>(i - begin)],
                           sum_of(ranks_, i, one.run) * scale);
                return;
            case Kind::reduce:
                for (std::int64_t i = 0; i < where.cuts.back(); ++i)
                    expect(one, i, load(where.type, where.data(), i),
                           i >= begin && i < end ? sum_of(ranks_, i, one.run)
                                                 : value(rank_, i, one.run));
                return;
            case Kind::all_reduce:
                for (std::int64_t i = 0; i < where.cuts.back(); ++i)
                    expect(one, i, load(where.type, where.data(), i), sum_of(ranks_, i, one.run));
                return;
            case Kind::broadcast:
                for (std::int64_t i = 0; i < where.cuts.back(); ++i)
                    expect(one, i, load(where.type, where.data(), i), value(one.root, i, one.run));
                return;
        }
    }

    void expect(const Started &one, std::int64_t element, float is, float should) const {
        if (is == should) return;
        throw std::runtime_error(std::string(names[static_cast<int>(one.kind)]) + " in run " +
                                 std::to_string(one.run) + ": element " + std::to_string(element) +
                                 " is " + std::to_string(is) + " and must be " +
                                 std::to_string(should));
    }

    void check_barrier() {
        vescomm::check(vescomm_barrier(comm_.get()));
        vescomm::Request barrier = vescomm::Request::barrier(comm_);
        barrier.run();
    }

    const vescomm::Communicator &comm_;
    const int rank_, ranks_;
    std::mt19937 random_;
    std::vector<Case> cases_;
    int made_ = 0, run_ = 0;
};

}  // namespace system_test
