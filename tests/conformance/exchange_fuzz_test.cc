// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Random exchanges on nodes of different sizes, with many calls in progress. In some plans the
// arguments of one call differ on one rank. The test requires: if a call completes on a rank, the
// rank has the correct data; no other memory is written; and no rank waits until the deadline.
#include <iterator>
#include <random>
#include <vector>

#include "base/thread_sanitizer.h"
#include "base/types.h"
#include "support/array_calls.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

// A call with the arguments that one rank passes.
struct Exchanged {
    Collective collective = Collective::all_to_all_v;
    vescomm_type_t type = VESCOMM_F32;
    std::size_t root = 0;
    std::vector<std::vector<std::int64_t>> blocks;  // counts, [from][to]

    bool has(std::size_t from, std::size_t to) const {
        return collective == Collective::all_to_all_v ||
               (collective == Collective::scatter_v ? from : to) == root;
    }
    bool operator==(const Exchanged &) const = default;
};

struct Plan {
    TestSetup setup;
    std::vector<std::vector<Exchanged>> calls;  // by rank
    bool wrong = false;  // the arguments of one call differ between ranks
    bool blocking = false;
};

// Zero, small, and around the limits of forwarding and of eager puts.
std::int64_t some_count(std::mt19937 &random) {
    constexpr std::int64_t counts[] = {0,    0,    1,    1,    2,    5,      17,     100,
                                       1023, 1024, 1025, 2048, 2049, 16'384, 16'385, 70'000};
    return counts[random() % std::size(counts)];
}

Exchanged some_call(std::mt19937 &random, std::size_t ranks) {
    constexpr Collective collectives[] = {Collective::all_to_all_v, Collective::all_to_all_v,
                                          Collective::scatter_v, Collective::gather_v};
    constexpr vescomm_type_t types[] = {VESCOMM_F32, VESCOMM_F64, VESCOMM_F8E4M3};
    Exchanged call{.collective = collectives[random() % std::size(collectives)],
                   .type = types[random() % std::size(types)],
                   .root = random() % ranks,
                   .blocks = {}};
    call.blocks.assign(ranks, std::vector<std::int64_t>(ranks));
    const bool sparse = random() % 3 == 0;
    for (std::size_t from = 0; from < ranks; ++from)
        for (std::size_t to = 0; to < ranks; ++to)
            if (call.has(from, to) && (!sparse || random() % 4 == 0))
                call.blocks[from][to] = some_count(random);
    return call;
}

Plan some_plan(Kind kind, std::uint32_t seed) {
    const std::vector<int> nodes[] = {{0, 0, 1, 1},    {0, 1, 1, 2, 2, 2},    {0, 1, 2, 2},
                                      {0, 1, 0, 1, 0}, {0, 0, 0, 0, 0, 1, 1}, {1, 0, 2, 1, 0}};
    std::mt19937 random(seed);
    Plan plan;
    plan.setup = {kind, nodes[random() % std::size(nodes)]};
    if (random() % 2 == 0) plan.setup.config.progress = "inline";
    plan.blocking = random() % 2 == 0;
    const auto ranks = static_cast<std::size_t>(plan.setup.ranks());
    const std::size_t calls = 4 + random() % 8;
    plan.calls.resize(ranks);
    for (std::size_t i = 0; i < calls; ++i) {
        const Exchanged call =
            i > 0 && random() % 3 == 0 ? plan.calls[0].back() : some_call(random, ranks);
        for (auto &its : plan.calls) its.push_back(call);
    }
    if (random() % 4 == 0) return plan;
    const std::size_t at = random() % calls, odd = random() % ranks;
    const Exchanged meant = plan.calls[odd][at];
    Exchanged &call = plan.calls[odd][at];
    if (random() % 8 == 0) {
        call = some_call(random, ranks);
    } else {
        for (int changes = 0; changes < 3; ++changes) {
            const std::size_t other = random() % ranks;
            if (other != odd && call.has(odd, other)) call.blocks[odd][other] = some_count(random);
            if (other != odd && call.has(other, odd)) call.blocks[other][odd] = some_count(random);
        }
    }
    plan.wrong = call != meant;
    return plan;
}

// Byte of a block. Its value is below 64, so no type reads a NaN.
std::byte byte_of(std::size_t call, std::size_t from, std::size_t to, std::size_t at) {
    const std::uint64_t mixed =
        (((call * 31 + from) * 31 + to) * 1'000'003 + at) * 0x9E3779B97F4A7C15u;
    return static_cast<std::byte>(mixed >> 58);
}

class RankOfPlan {
public:
    RankOfPlan(vescomm_comm_t *comm, const Plan &plan)
        : comm_(comm),
          plan_(plan),
          rank_(static_cast<std::size_t>(comm->value->rank())),
          ranks_(plan.calls.size()),
          calls_(plan.calls[rank_]),
          arrays_(calls_.size()),
          requests_(calls_.size()) {}

    void run() {
        vescomm_status_t status = VESCOMM_OK;
        for (std::size_t i = 0; i < calls_.size() && status == VESCOMM_OK; ++i) {
            status = start(i);
            if (plan_.blocking && status == VESCOMM_OK) status = finish(i);
        }
        for (std::size_t i = 0; i < calls_.size() && status == VESCOMM_OK; ++i)
            if (!plan_.blocking) status = finish(i);
        if (!plan_.wrong) check(status);
        // A timeout is not allowed: no rank waits until the deadline.
        if (status != VESCOMM_OK) {
            EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        }
        for (vescomm_request_t *request : requests_) vescomm_request_free(request);
    }

private:
    struct Arrays {
        std::vector<std::byte> source, output;
        std::vector<std::int64_t> sends, receives;
    };
    static constexpr std::byte untouched{0xA5};
    static constexpr std::size_t guard = 64;

    vescomm_status_t start(std::size_t i) {
        const Exchanged &call = calls_[i];
        const std::size_t size = size_of(call.type);
        Arrays &its = arrays_[i];
        std::size_t size_with_guard = guard;
        for (std::size_t peer = 0; peer < ranks_; ++peer) {
            its.sends.push_back(call.blocks[rank_][peer]);
            its.receives.push_back(call.blocks[peer][rank_]);
            for (std::size_t at = 0; at < static_cast<std::size_t>(its.sends[peer]) * size; ++at)
                its.source.push_back(byte_of(i, rank_, peer, at));
            size_with_guard += static_cast<std::size_t>(its.receives[peer]) * size;
        }
        its.output.assign(size_with_guard, untouched);
        auto options = vescomm_call_options_init();
        options.algorithm = "two_level";
        const auto root = static_cast<std::int32_t>(call.root);
        switch (call.collective) {
            case Collective::scatter_v:
                return vescomm_scatter_v(comm_, its.source.data(), its.output.data(),
                                         call.blocks[call.root].data(), nullptr, call.type, root,
                                         &options, nullptr, &requests_[i]);
            case Collective::gather_v: {
                std::vector<std::int64_t> counts;
                for (const auto &row : call.blocks) counts.push_back(row[call.root]);
                return vescomm_gather_v(comm_, its.source.data(), its.output.data(), counts.data(),
                                        nullptr, call.type, root, &options, nullptr, &requests_[i]);
            }
            default:
                return vescomm_all_to_all_v(comm_, its.source.data(), its.sends.data(), nullptr,
                                            its.output.data(), its.receives.data(), nullptr,
                                            call.type, &options, nullptr, &requests_[i]);
        }
    }

    vescomm_status_t finish(std::size_t i) {
        const vescomm_status_t status = vescomm_request_wait(requests_[i]);
        if (status != VESCOMM_OK) return status;
        const Exchanged &call = calls_[i];
        const Arrays &its = arrays_[i];
        std::vector<std::byte> meant;
        for (std::size_t from = 0; from < ranks_; ++from) {
            const std::int64_t count = its.receives[from];
            const Exchanged &theirs = plan_.calls[from][i];
            if (count > 0) {
                EXPECT_TRUE(theirs.collective == call.collective && theirs.type == call.type &&
                            theirs.blocks[from][rank_] == count)
                    << "rank " << rank_ << ", call " << i << ", from rank " << from;
            }
            for (std::size_t at = 0; at < static_cast<std::size_t>(count) * size_of(call.type);
                 ++at)
                meant.push_back(byte_of(i, from, rank_, at));
        }
        meant.resize(meant.size() + guard, untouched);
        EXPECT_TRUE(its.output == meant) << "rank " << rank_ << ", call " << i;
        return status;
    }

    vescomm_comm_t *comm_;
    const Plan &plan_;
    std::size_t rank_, ranks_;
    const std::vector<Exchanged> &calls_;
    std::vector<Arrays> arrays_;
    std::vector<vescomm_request_t *> requests_;
};

void run_plans(Kind kind, std::uint32_t plans) {
    for (std::uint32_t seed = 0; seed < plans; ++seed) {
        const Plan plan = some_plan(kind, seed);
#if VESCOMM_THREAD_SANITIZER
        // Until the mismatch is detected, ranks read staging memory that others write.
        if (plan.wrong) continue;
#endif
        SCOPED_TRACE(testing::Message() << "plan " << seed << " on " << name_of(plan.setup));
        run_array_ranks(plan.setup, [&](vescomm_comm_t *comm) { RankOfPlan(comm, plan).run(); });
    }
}

TEST(ExchangeFuzz, ResultIsCorrectOrAnErrorOverLoopback) {
    run_plans(Kind::loopback, 30);
}

TEST(ExchangeFuzz, ResultIsCorrectOrAnErrorOverTcp) {
    run_plans(Kind::tcp, 30);
}

#if VESCOMM_HAVE_UCX
TEST(ExchangeFuzz, ResultIsCorrectOrAnErrorOverUcx) {
    run_plans(Kind::ucx, 30);
}
#endif

}  // namespace
}  // namespace vescomm::internal
