// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls on arrays that are repeated, exactly or nearly. The library caches the calls, so what
// differs must be noticed: counts and offsets in the same vector, another op, another type.
#include <algorithm>
#include <random>

#include "support/array_calls.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

constexpr int arena = 512;  // elements of the arrays of a rank

// The arguments of a call on every rank.
struct Site {
    Collective collective = Collective::all_reduce;
    std::size_t source_at = 0, output_at = 0;  // in the arrays of the rank
    std::vector<std::int64_t> counts;  // by rank; all_to_all_v: by sender and receiver
    std::vector<std::int64_t> gaps;  // before each block of the output; empty: no offsets
    std::int64_t count = 0;
    vescomm_op_t op = VESCOMM_SUM;
    int root = 0;
    bool equal = false;  // counts are equal, and every second rank gives one count for all

    std::int64_t exchanged(int from, int to, int ranks) const {
        return counts[static_cast<std::size_t>(from * ranks + to)];
    }
};

template <typename Random>
Site random_site(Random &random, int ranks) {
    const auto below = [&random](int end) {
        return static_cast<int>(random() % static_cast<unsigned>(end));
    };
    constexpr Collective all[] = {Collective::all_gather_v, Collective::reduce_scatter_v,
                                  Collective::all_reduce,   Collective::reduce,
                                  Collective::broadcast,    Collective::gather_v,
                                  Collective::scatter_v,    Collective::all_to_all_v};
    Site site;
    site.collective = all[below(8)];
    site.source_at = static_cast<std::size_t>(8 * below(3));
    site.output_at = static_cast<std::size_t>(8 * below(3));
    site.count = below(24);
    site.op = below(2) == 0 ? VESCOMM_SUM : VESCOMM_MAX;
    site.root = below(ranks);
    const bool exchange = site.collective == Collective::all_to_all_v;
    for (int i = 0; i < (exchange ? ranks * ranks : ranks); ++i) site.counts.push_back(below(20));
    if (below(2) == 0)
        for (int i = 0; i < ranks; ++i) site.gaps.push_back(below(3));
    if (below(3) == 0) {
        site.equal = true;
        site.gaps.clear();
        std::ranges::fill(site.counts, site.counts[0]);
    }
    return site;
}

// The arrays of one rank, and vectors that every call uses anew for its counts and offsets.
class Caller {
public:
    explicit Caller(vescomm_comm_t *comm)
        : comm_(comm),
          rank_(comm->value->rank()),
          ranks_(comm->value->ranks()),
          source_(arena),
          output_(arena),
          counts_(static_cast<std::size_t>(ranks_)),
          receives_(counts_),
          offsets_(counts_) {}

    // Makes the call with new data, and compares the results. `wait_later`: by a request.
    void call(const Site &site, int step, bool wait_later) {
        for (int i = 0; i < arena; ++i)
            source_[static_cast<std::size_t>(i)] = value(rank_, i, step);
        std::fill(output_.begin(), output_.end(), -1.0F);
        vescomm_request_t *request = nullptr;
        check(start(site, wait_later ? &request : nullptr));
        if (wait_later) {
            check(vescomm_request_wait(request));
            check(vescomm_request_free(request));
        }
        ASSERT_EQ(output_, expected(site, step))
            << name_of(site.collective) << " in step " << step << " on rank " << rank_;
    }

private:
    static float value(int rank, std::int64_t i, int step) {
        return static_cast<float>(1000 * rank + i + step % 100);
    }

    bool takes_blocks(const Site &site) const {
        return site.collective == Collective::all_gather_v ||
               site.collective == Collective::all_to_all_v ||
               (site.collective == Collective::gather_v && rank_ == site.root);
    }

    vescomm_status_t start(const Site &site, vescomm_request_t **request) {
        float *source = source_.data() + site.source_at;
        float *output = output_.data() + site.output_at;
        const bool exchange = site.collective == Collective::all_to_all_v;
        for (int rank = 0; rank < ranks_; ++rank) {
            const auto at = static_cast<std::size_t>(rank);
            counts_[at] = exchange ? site.exchanged(rank_, rank, ranks_) : site.counts[at];
            receives_[at] = exchange ? site.exchanged(rank, rank_, ranks_) : site.counts[at];
        }
        std::int64_t next = 0;
        for (std::size_t at = 0; at < offsets_.size(); ++at) {
            if (!site.gaps.empty()) next += site.gaps[at];
            offsets_[at] = next;
            next += receives_[at];
        }
        const std::int64_t *counts = counts_.data();
        const std::int64_t *offsets = site.gaps.empty() ? nullptr : offsets_.data();
        if (site.equal && (rank_ + site.count) % 2 == 0) {
            if (site.collective == Collective::all_gather_v)
                return vescomm_all_gather(comm_, source, output, counts[0], VESCOMM_F32, nullptr,
                                          nullptr, request);
            if (site.collective == Collective::reduce_scatter_v)
                return vescomm_reduce_scatter(comm_, source, output, counts[0], VESCOMM_F32,
                                              site.op, nullptr, nullptr, request);
            if (site.collective == Collective::all_to_all_v)
                return vescomm_all_to_all(comm_, source, output, counts[0], VESCOMM_F32, nullptr,
                                          nullptr, request);
        }
        switch (site.collective) {
            case Collective::all_gather_v:
                return vescomm_all_gather_v(comm_, source, output, counts, offsets, VESCOMM_F32,
                                            nullptr, nullptr, request);
            case Collective::reduce_scatter_v:
                return vescomm_reduce_scatter_v(comm_, source, output, counts, VESCOMM_F32, site.op,
                                                nullptr, nullptr, request);
            case Collective::all_reduce:
                return vescomm_all_reduce(comm_, source, output, site.count, VESCOMM_F32, site.op,
                                          nullptr, nullptr, request);
            case Collective::reduce:
                return vescomm_reduce(comm_, source, output, site.count, VESCOMM_F32, site.op,
                                      site.root, nullptr, nullptr, request);
            case Collective::broadcast:
                return vescomm_broadcast(comm_, rank_ == site.root ? source : output, site.count,
                                         VESCOMM_F32, site.root, nullptr, nullptr, request);
            case Collective::gather_v:
                return vescomm_gather_v(comm_, source, output, counts, offsets, VESCOMM_F32,
                                        site.root, nullptr, nullptr, request);
            case Collective::scatter_v:
                return vescomm_scatter_v(comm_, source, output, counts, nullptr, VESCOMM_F32,
                                         site.root, nullptr, nullptr, request);
            default:
                return vescomm_all_to_all_v(comm_, source, counts, nullptr, output,
                                            receives_.data(), offsets, VESCOMM_F32, nullptr,
                                            nullptr, request);
        }
    }

    std::vector<float> expected(const Site &site, int step) const {
        std::vector<float> result(arena, -1.0F);
        const auto at = static_cast<std::int64_t>(site.source_at);
        const auto combined = [&](std::int64_t i) {
            float all = value(0, at + i, step);
            for (int rank = 1; rank < ranks_; ++rank) {
                const float next = value(rank, at + i, step);
                all = site.op == VESCOMM_SUM ? all + next : std::max(all, next);
            }
            return all;
        };
        const auto before = [&](int rank) {
            std::int64_t sum = 0;
            for (int r = 0; r < rank; ++r) sum += site.counts[static_cast<std::size_t>(r)];
            return sum;
        };
        float *output = result.data() + site.output_at;
        const std::int64_t own = site.collective == Collective::all_to_all_v
                                     ? 0
                                     : site.counts[static_cast<std::size_t>(rank_)];
        switch (site.collective) {
            case Collective::reduce_scatter_v:
                for (std::int64_t i = 0; i < own; ++i) output[i] = combined(before(rank_) + i);
                return result;
            case Collective::scatter_v:
                for (std::int64_t i = 0; i < own; ++i)
                    output[i] = value(site.root, at + before(rank_) + i, step);
                return result;
            case Collective::reduce:
            case Collective::all_reduce:
                if (site.collective == Collective::reduce && rank_ != site.root) return result;
                for (std::int64_t i = 0; i < site.count; ++i) output[i] = combined(i);
                return result;
            case Collective::broadcast:
                if (rank_ == site.root) return result;
                for (std::int64_t i = 0; i < site.count; ++i)
                    output[i] = value(site.root, at + i, step);
                return result;
            default:
                break;
        }
        if (!takes_blocks(site)) return result;
        for (int from = 0; from < ranks_; ++from) {
            const bool exchange = site.collective == Collective::all_to_all_v;
            if (!site.gaps.empty()) output += site.gaps[static_cast<std::size_t>(from)];
            std::int64_t begin = 0;
            if (exchange)
                for (int to = 0; to < rank_; ++to) begin += site.exchanged(from, to, ranks_);
            const std::int64_t count = exchange ? site.exchanged(from, rank_, ranks_)
                                                : site.counts[static_cast<std::size_t>(from)];
            for (std::int64_t i = 0; i < count; ++i) *output++ = value(from, at + begin + i, step);
        }
        return result;
    }

    vescomm_comm_t *comm_;
    int rank_, ranks_;
    std::vector<float> source_, output_;
    std::vector<std::int64_t> counts_, receives_, offsets_;
};

// More sites than the cache holds, some of them often. Every call after the first differs from
// earlier ones in little or in nothing.
void make_random_calls(const TestSetup &setup, int sites, int steps) {
    run_array_ranks(setup, [&](vescomm_comm_t *comm) {
        std::mt19937 random(7);  // the same on every rank
        std::vector<Site> all;
        for (int i = 0; i < sites; ++i) all.push_back(random_site(random, setup.ranks()));
        Caller caller(comm);
        for (int step = 0; step < steps; ++step) {
            const std::size_t among = random() % 2 == 0 ? 8 : all.size();
            const Site &site = all[random() % among];
            const bool wait_later = random() % 4 == 0;
            ASSERT_NO_FATAL_FAILURE(caller.call(site, step, wait_later));
        }
    });
}

TEST(RepeatedCalls, EveryDifferenceOfArgumentsIsNoticed) {
    make_random_calls({Kind::node, {0, 0}}, 300, 6'000);
    make_random_calls({Kind::loopback, {0, 0, 0}}, 200, 3'000);
}

TEST(RepeatedCalls, EveryDifferenceOfArgumentsIsNoticedBetweenNodes) {
    make_random_calls({Kind::tcp, {0, 0, 1}}, 200, 1'500);
}

// The calls of a request that is under way, of a group, and blocking ones have the same arguments.
TEST(RepeatedCalls, MayBeUnderWayTogether) {
    run_array_ranks({Kind::node, {0, 0}}, [](vescomm_comm_t *comm) {
        std::vector<float> source(10), first(10), group(10), last(10);
        const auto sum = [&](std::vector<float> &output, vescomm_request_t **request) {
            check(vescomm_all_reduce(comm, source.data(), output.data(), 10, VESCOMM_F32,
                                     VESCOMM_SUM, nullptr, nullptr, request));
        };
        for (int step = 0; step < 100; ++step) {
            std::fill(source.begin(), source.end(), static_cast<float>(step));
            const std::vector<float> twice(10, static_cast<float>(2 * step));
            vescomm_request_t *requests[2] = {};
            sum(first, &requests[0]);
            std::vector<float> same(10);
            sum(same, &requests[1]);
            check(vescomm_group_begin(comm));
            sum(group, nullptr);
            sum(last, nullptr);
            check(vescomm_group_end(comm, nullptr));
            sum(last, nullptr);
            for (vescomm_request_t *request : requests) {
                check(vescomm_request_wait(request));
                check(vescomm_request_free(request));
            }
            for (const auto &output : {first, same, group, last}) ASSERT_EQ(output, twice);
        }
    });
}

// Groups that repeat an earlier one, wholly or up to some call.
TEST(RepeatedCalls, MayBeGroups) {
    run_array_ranks({Kind::loopback, {0, 0, 0}}, [](vescomm_comm_t *comm) {
        std::mt19937 random(3);  // the same on every rank
        constexpr std::size_t arrays = 4;
        std::vector<std::vector<float>> sources(arrays), outputs(arrays);
        for (std::size_t i = 0; i < arrays; ++i) {
            sources[i].resize(20);
            outputs[i].resize(20);
        }
        for (int step = 0; step < 2'000; ++step) {
            std::vector<float> expected[arrays];
            for (std::size_t i = 0; i < arrays; ++i) {
                std::fill(sources[i].begin(), sources[i].end(),
                          static_cast<float>(step % 50 + comm->value->rank()) + 0.5F * i);
                std::fill(outputs[i].begin(), outputs[i].end(), -1.0F);
                expected[i] = outputs[i];
            }
            check(vescomm_group_begin(comm));
            const std::size_t calls = random() % (arrays + 1);
            for (std::size_t i = 0; i < calls; ++i) {
                const auto count = static_cast<std::int64_t>(random() % 3 == 0 ? 20 : 10);
                const bool max = random() % 3 == 0;
                check(vescomm_all_reduce(comm, sources[i].data(), outputs[i].data(), count,
                                         VESCOMM_F32, max ? VESCOMM_MAX : VESCOMM_SUM, nullptr,
                                         nullptr, nullptr));
                const float first = static_cast<float>(step % 50) + 0.5F * i;
                std::fill_n(expected[i].begin(), count, max ? first + 2 : 3 * first + 3);
            }
            vescomm_request_t *request = nullptr;
            const bool wait_later = random() % 2 == 0;
            check(vescomm_group_end(comm, wait_later ? &request : nullptr));
            if (wait_later) {
                check(vescomm_request_wait(request));
                check(vescomm_request_free(request));
            }
            for (std::size_t i = 0; i < arrays; ++i) ASSERT_EQ(outputs[i], expected[i]) << step;
        }
    });
}

// Arguments that were right once are checked again when they change.
TEST(RepeatedCalls, WrongArgumentsAreStillRefused) {
    run_array_ranks({Kind::node, {0, 0}}, [](vescomm_comm_t *comm) {
        std::vector<float> source(20, 1), output(20);
        std::vector<std::int64_t> counts{10, 10}, offsets{0, 10};
        const auto gather = [&](const void *from, vescomm_type_t type) {
            return vescomm_all_gather_v(comm, from, output.data(), counts.data(), offsets.data(),
                                        type, nullptr, nullptr, nullptr);
        };
        for (int i = 0; i < 3; ++i) check(gather(source.data(), VESCOMM_F32));
        counts[1] = -1;
        EXPECT_REFUSED(gather(source.data(), VESCOMM_F32), "counts[1]");
        counts[1] = 10;
        offsets[1] = 9;
        EXPECT_REFUSED(gather(source.data(), VESCOMM_F32), "overlap");
        offsets[1] = 10;
        EXPECT_REFUSED(gather(nullptr, VESCOMM_F32), "source is NULL");
        EXPECT_REFUSED(gather(source.data(), 99), "type 99");
        EXPECT_REFUSED(vescomm_all_gather_v(comm, source.data(), output.data(), nullptr,
                                            offsets.data(), VESCOMM_F32, nullptr, nullptr, nullptr),
                       "counts is NULL");
        check(gather(source.data(), VESCOMM_F32));
        // A call with one count, 0, has no list either.
        for (int i = 0; i < 2; ++i)
            check(vescomm_all_gather(comm, source.data(), output.data(), 0, VESCOMM_F32, nullptr,
                                     nullptr, nullptr));
        EXPECT_REFUSED(vescomm_all_gather_v(comm, source.data(), output.data(), nullptr, nullptr,
                                            VESCOMM_F32, nullptr, nullptr, nullptr),
                       "counts is NULL");
    });
}

}  // namespace
}  // namespace vescomm::internal
