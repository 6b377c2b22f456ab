// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Random sequences of small calls on arrays, every element of every result compared. In suite slow
// a hundred million of them, also while another process takes time from the ranks.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;
using Value = std::int32_t;

constexpr int max_ranks = 4;
constexpr int max_elements = 400;  // of a block
// Calls repeat the addresses and counts of earlier ones, so that what is kept of a call is used
// again.
constexpr int places = 4;

std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// Element `i` of what a rank contributes to call `call`. Sums of ranks do not overflow.
Value value_of(std::uint64_t call, int rank, int i) {
    return static_cast<Value>((call * 2654435761u + static_cast<std::uint64_t>(rank) * 40503u +
                               static_cast<std::uint64_t>(i) * 97u) &
                              0xfffff);
}

Value sum_of(std::uint64_t call, int ranks, int i) {
    Value sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value_of(call, rank, i);
    return sum;
}

// One rank: makes the calls that all ranks draw alike.
class Caller {
public:
    Caller(vescomm_comm_t *comm, int rank, int ranks)
        : comm_(comm),
          rank_(rank),
          ranks_(ranks),
          source_(places * (max_ranks * max_elements + 1)),
          output_(source_.size()) {}

    void call(std::uint64_t number) {
        const std::uint64_t random = mix(number + 1);
        number_ = number;
        n_ = static_cast<int>(random % 8 == 0 ? (random >> 8) % max_elements : (random >> 8) % 9);
        root_ = static_cast<int>((random >> 24) % static_cast<std::uint64_t>(ranks_));
        const std::size_t at =
            (random >> 32) % places * static_cast<std::size_t>(max_ranks * max_elements + 1);
        from_ = source_.data() + at;
        to_ = output_.data() + at;
        for (int rank = 0; rank < ranks_; ++rank) {
            counts_[rank] = (random >> (40 + 2 * rank)) % 4 == 0 ? 0 : (n_ + rank) % max_elements;
            offsets_[rank + 1] = offsets_[rank] + counts_[rank];
        }
        switch ((random >> 52) % 12) {
            case 0:
                return reduce_all();
            case 1:
                return gather_all();
            case 2:
                return scatter_sums();
            case 3:
                return send_to_all();
            case 4:
                return reduce_to_root();
            case 5:
                return gather_to_root();
            case 6:
                return scatter_from_root();
            case 7:
                return exchange();
            case 8:
                return require(vescomm_barrier(comm_), "barrier");
            case 9:
                return message();
            case 10:
                return gather_ragged();
            default:
                return scatter_ragged_sums();
        }
    }

private:
    void fill(int elements) {
        for (int i = 0; i < elements; ++i) from_[i] = value_of(number_, rank_, i);
    }
    void expect_element(const char *what, int i, Value expected) const {
        if (to_[i] == expected) return;
        std::fprintf(stderr, "call %llu, rank %d, %s: element %d is %d, not %d\n",
                     static_cast<unsigned long long>(number_), rank_, what, i, to_[i], expected);
        _exit(1);
    }

    void reduce_all() {
        fill(n_);
        require(vescomm_all_reduce(comm_, from_, to_, n_, VESCOMM_I32, VESCOMM_SUM, nullptr,
                                   nullptr, nullptr),
                "all_reduce");
        for (int i = 0; i < n_; ++i) expect_element("all_reduce", i, sum_of(number_, ranks_, i));
    }
    void gather_all() {
        fill(n_);
        require(vescomm_all_gather(comm_, from_, to_, n_, VESCOMM_I32, nullptr, nullptr, nullptr),
                "all_gather");
        for (int i = 0; i < n_ * ranks_; ++i)
            expect_element("all_gather", i, value_of(number_, i / n_, i % n_));
    }
    void scatter_sums() {
        fill(n_ * ranks_);
        require(vescomm_reduce_scatter(comm_, from_, to_, n_, VESCOMM_I32, VESCOMM_SUM, nullptr,
                                       nullptr, nullptr),
                "reduce_scatter");
        for (int i = 0; i < n_; ++i)
            expect_element("reduce_scatter", i, sum_of(number_, ranks_, rank_ * n_ + i));
    }
    void send_to_all() {
        for (int i = 0; i < n_; ++i) to_[i] = rank_ == root_ ? value_of(number_, root_, i) : -1;
        require(vescomm_broadcast(comm_, to_, n_, VESCOMM_I32, root_, nullptr, nullptr, nullptr),
                "broadcast");
        for (int i = 0; i < n_; ++i) expect_element("broadcast", i, value_of(number_, root_, i));
    }
    void reduce_to_root() {
        fill(n_);
        require(vescomm_reduce(comm_, from_, to_, n_, VESCOMM_I32, VESCOMM_SUM, root_, nullptr,
                               nullptr, nullptr),
                "reduce");
        if (rank_ != root_) return;
        for (int i = 0; i < n_; ++i) expect_element("reduce", i, sum_of(number_, ranks_, i));
    }
    void gather_to_root() {
        fill(static_cast<int>(counts_[rank_]));
        require(vescomm_gather_v(comm_, from_, to_, counts_.data(), nullptr, VESCOMM_I32, root_,
                                 nullptr, nullptr, nullptr),
                "gather_v");
        if (rank_ == root_) expect_blocks("gather_v");
    }
    void scatter_from_root() {
        fill(static_cast<int>(offsets_[ranks_]));
        require(vescomm_scatter_v(comm_, from_, to_, counts_.data(), nullptr, VESCOMM_I32, root_,
                                  nullptr, nullptr, nullptr),
                "scatter_v");
        for (int i = 0; i < counts_[rank_]; ++i)
            expect_element("scatter_v", i,
                           value_of(number_, root_, static_cast<int>(offsets_[rank_]) + i));
    }
    void exchange() {
        fill(n_ * ranks_);
        require(vescomm_all_to_all(comm_, from_, to_, n_, VESCOMM_I32, nullptr, nullptr, nullptr),
                "all_to_all");
        for (int i = 0; i < n_ * ranks_; ++i)
            expect_element("all_to_all", i, value_of(number_, i / n_, rank_ * n_ + i % n_));
    }
    void message() {
        const int peer = (root_ + 1) % ranks_;
        if (rank_ == root_) {
            fill(n_);
            require(vescomm_send(comm_, from_, n_, VESCOMM_I32, peer, nullptr, nullptr, nullptr),
                    "send");
        } else if (rank_ == peer) {
            require(vescomm_receive(comm_, to_, n_, VESCOMM_I32, root_, nullptr, nullptr, nullptr),
                    "receive");
            for (int i = 0; i < n_; ++i) expect_element("receive", i, value_of(number_, root_, i));
        }
    }
    void gather_ragged() {
        fill(static_cast<int>(counts_[rank_]));
        require(vescomm_all_gather_v(comm_, from_, to_, counts_.data(), nullptr, VESCOMM_I32,
                                     nullptr, nullptr, nullptr),
                "all_gather_v");
        expect_blocks("all_gather_v");
    }
    void scatter_ragged_sums() {
        fill(static_cast<int>(offsets_[ranks_]));
        require(vescomm_reduce_scatter_v(comm_, from_, to_, counts_.data(), VESCOMM_I32,
                                         VESCOMM_SUM, nullptr, nullptr, nullptr),
                "reduce_scatter_v");
        for (int i = 0; i < counts_[rank_]; ++i)
            expect_element("reduce_scatter_v", i,
                           sum_of(number_, ranks_, static_cast<int>(offsets_[rank_]) + i));
    }
    void expect_blocks(const char *what) const {
        for (int rank = 0; rank < ranks_; ++rank)
            for (int i = 0; i < counts_[rank]; ++i)
                expect_element(what, static_cast<int>(offsets_[rank]) + i,
                               value_of(number_, rank, i));
    }

    vescomm_comm_t *comm_;
    int rank_, ranks_;
    std::vector<Value> source_, output_;
    std::array<std::int64_t, max_ranks> counts_{};
    std::array<std::int64_t, max_ranks + 1> offsets_{};
    // The call under way.
    std::uint64_t number_ = 0;
    int n_ = 0, root_ = 0;
    Value *from_ = nullptr, *to_ = nullptr;
};

void make_random_calls(int ranks, int per_node, std::uint64_t calls) {
    Job job{.ranks = ranks, .per_node = per_node};
    job.max_seconds = 7000;
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr;
        require(job.create(rank, "", &comm), "create");
        Caller caller(comm, rank, ranks);
        for (std::uint64_t number = 0; number < calls; ++number) caller.call(number);
        require(vescomm_comm_finalize(comm), "finalize");
        require(vescomm_comm_free(comm), "free");
    });
}

// Calls of an arrangement in which a call takes `slower` times as long as between two ranks that
// have a core each.
std::uint64_t calls(int slower) {
    return std::max<std::uint64_t>(1'000, static_cast<std::uint64_t>(repetitions(20'000)) /
                                              static_cast<std::uint64_t>(slower));
}

TEST(RandomCalls, TwoRanks) {
    make_random_calls(2, 2, calls(1));
}

// Processes of a low priority take the cores from the ranks for a moment, at any place of a call.
TEST(RandomCalls, TwoRanksUnderLoad) {
    std::array<pid_t, 2> load;
    for (pid_t &process : load) {
        process = fork();
        if (process == 0) {
            setpriority(PRIO_PROCESS, 0, 10);
            for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
        }
    }
    make_random_calls(2, 2, calls(2));
    for (const pid_t process : load) {
        kill(process, SIGKILL);
        waitpid(process, nullptr, 0);
    }
}

TEST(RandomCalls, ThreeRanks) {
    make_random_calls(3, 3, calls(20));
}

TEST(RandomCalls, ThreeRanksOnTwoNodes) {
    make_random_calls(3, 2, calls(100));
}

}  // namespace
