// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Many operations are started before one of their ranks starts any. Their eager puts use up the
// budget (transport/eager_flow.h): the late rank keeps few bytes, and all operations complete.
#include <latch>

#include "comm/buffer.h"
#include "comm/request.h"
#include "comm/staging_buffer.h"
#include "support/array_calls.h"
#include "transport/eager_flow.h"

namespace vescomm::internal::testing_support {
namespace {

class EagerBudget : public ::testing::TestWithParam<TestSetup> {
protected:
    void TearDown() override { eager_budget_bytes = before_; }

private:
    const std::uint64_t before_ = eager_budget_bytes;
};

double &element(const Buffer &buffer, std::int64_t i) {
    return *reinterpret_cast<double *>(buffer.at(i));
}

// Requests of one collective, each on a buffer of its own with `elements` per rank.
class Requests {
public:
    Requests(const std::shared_ptr<Communicator> &comm, int count, std::int64_t elements,
             Collective collective, const std::string &algorithm)
        : rank_(comm->rank()), ranks_(comm->ranks()), elements_(elements) {
        const auto staging = StagingBuffer::create(comm);
        const Layout layout = Layout::from_counts(
            std::vector<std::int64_t>(static_cast<std::size_t>(ranks_), elements));
        for (int k = 0; k < count; ++k) {
            buffers_.push_back(Buffer::create(comm, layout, {.type = VESCOMM_F64, .name = "many"}));
            requests_.push_back(Request::create(
                staging, buffers_.back(), {.collective = collective, .algorithm = algorithm}));
        }
    }

    void fill() {
        for (std::size_t k = 0; k < buffers_.size(); ++k)
            for (std::int64_t i = 0; i < elements_ * ranks_; ++i)
                element(*buffers_[k], i) = value(k, i, rank_);
    }
    void start() {
        for (const auto &request : requests_) request->start();
    }
    void wait() {
        for (const auto &request : requests_) request->wait();
    }

    // After an all_gather_v.
    void expect_shards() const {
        for (std::size_t k = 0; k < buffers_.size(); ++k)
            for (std::int64_t i = 0; i < elements_ * ranks_; ++i)
                ASSERT_EQ(element(*buffers_[k], i), value(k, i, static_cast<int>(i / elements_)))
                    << "element " << i << " of buffer " << k;
    }
    // After an all_reduce.
    void expect_sums() const {
        for (std::size_t k = 0; k < buffers_.size(); ++k)
            for (std::int64_t i = 0; i < elements_ * ranks_; ++i) {
                double sum = 0;
                for (int rank = 0; rank < ranks_; ++rank) sum += value(k, i, rank);
                ASSERT_EQ(element(*buffers_[k], i), sum) << "element " << i << " of buffer " << k;
            }
    }

private:
    static double value(std::size_t buffer, std::int64_t i, int rank) {
        return static_cast<double>(1000 * buffer + 100 * static_cast<std::size_t>(rank) +
                                   static_cast<std::size_t>(i % 89));
    }

    const int rank_, ranks_;
    const std::int64_t elements_;
    std::vector<std::shared_ptr<Buffer>> buffers_;
    std::vector<std::unique_ptr<Request>> requests_;
};

// 128 KiB for each of 50 requests: more than the limit of the unexpected queue.
TEST_P(EagerBudget, BoundsTheQueueOfARankThatStartsLater) {
    eager_budget_bytes = 64 << 10;
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        Requests many(comm->value, 50, 16'384, Collective::all_gather_v, "");
        many.fill();
        const int last = comm->value->ranks() - 1;
        int token = 0;
        if (comm->value->rank() == last) {
            // A message arrives after the eager puts that its sender made before.
            for (int peer = 0; peer < last; ++peer)
                check(
                    vescomm_receive(comm, &token, 1, VESCOMM_I32, peer, nullptr, nullptr, nullptr));
            many.start();
        } else {
            many.start();
            check(vescomm_send(comm, &token, 1, VESCOMM_I32, last, nullptr, nullptr, nullptr));
        }
        many.wait();
        many.expect_shards();
    });
}

// The root of broadcasts waits for no receiver until its budget is used up.
TEST_P(EagerBudget, BoundsTheBroadcastsOfARootThatIsAhead) {
    eager_budget_bytes = 64 << 10;
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank(), last = comm->value->ranks() - 1;
        int token = 0;
        if (rank == last)
            check(vescomm_receive(comm, &token, 1, VESCOMM_I32, 0, nullptr, nullptr, nullptr));
        for (int call = 0; call < 200; ++call) {
            Floats data(2000, rank == 0 ? static_cast<float>(call) : -1.0F);
            check(vescomm_broadcast(comm, data.data(), 2000, VESCOMM_F32, 0, nullptr, nullptr,
                                    nullptr));
            EXPECT_EQ(data, Floats(2000, static_cast<float>(call)));
            // The last rank has started none of them.
            if (rank == 0 && call == 3)
                check(vescomm_send(comm, &token, 1, VESCOMM_I32, last, nullptr, nullptr, nullptr));
        }
        expect_in_step(comm);
    });
}

TEST_P(EagerBudget, IsTooSmallForAnyPut) {
    eager_budget_bytes = 1;
    run_ranks(GetParam(), [&](const std::shared_ptr<Communicator> &comm) {
        Requests many(comm, 20, 300, Collective::all_reduce, "doubling");
        for (int run = 0; run < 3; ++run) {
            many.fill();
            many.start();
            many.wait();
            many.expect_sums();
        }
    });
}

// One rank is ahead: it has started an all_reduce and the all_gather_v after it, whose puts use
// up its budgets. The puts of later phases of the all_reduce follow, once a late rank has started
// it. The other ranks wait for the all_reduce before they start, and so expect, the all_gather_v.
TEST_P(EagerBudget, LetsPutsOfAnEarlierOperationPassThoseOfALaterOne) {
    eager_budget_bytes = 1;
    const TestSetup setup = GetParam();
    for (int ahead = 0; ahead < setup.ranks(); ++ahead) {
        for (int late = 0; late < setup.ranks(); ++late) {
            if (late == ahead) continue;
            SCOPED_TRACE(testing::Message() << ahead << " is ahead, " << late << " is late");
            std::latch started(1);
            run_ranks(setup, [&](const std::shared_ptr<Communicator> &comm) {
                Requests sums(comm, 1, 300, Collective::all_reduce, "doubling");
                Requests shards(comm, 1, 300, Collective::all_gather_v, "");
                sums.fill();
                shards.fill();
                if (comm->rank() == late) started.wait();
                sums.start();
                if (comm->rank() == ahead) shards.start();
                if (comm->rank() == ahead) started.count_down();
                sums.wait();
                if (comm->rank() != ahead) shards.start();
                shards.wait();
                sums.expect_sums();
                shards.expect_shards();
            });
        }
    }
}

std::vector<TestSetup> setups() {
    std::vector<TestSetup> all;
    for (const Kind kind : kinds_between_nodes()) {
        if (kind == Kind::loopback) continue;  // it has no eager puts
        for (const int ranks : {2, 3, 4, 5}) {
            TestSetup setup{kind, {}};
            for (int rank = 0; rank < ranks; ++rank) setup.node_of.push_back(rank);
            all.push_back(setup);
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(BetweenNodes, EagerBudget, ::testing::ValuesIn(setups()),
                         [](const auto &info) { return name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal::testing_support
