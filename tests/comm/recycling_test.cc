// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests and memories that are created and freed repeatedly: their channels are reused.
#include <cstdlib>
#include <random>
#include <stdexcept>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::TestSetup;

// More than the channels of any board.
int requests() {
    const char *text = std::getenv("VESCOMM_TEST_REQUESTS");
    if (text != nullptr) return std::atoi(text);
    return std::getenv("VESCOMM_TEST_SLOW") != nullptr ? 20'000 : 100'000;
}

vescomm_buffer_t *make_buffer(vescomm_comm_t *comm, vescomm_sharing_t sharing) {
    const std::vector<std::int64_t> counts(static_cast<std::size_t>(comm->value->ranks()), 50);
    vescomm_layout_t *layout = nullptr;
    vescomm_buffer_t *buffer = nullptr;
    check(vescomm_layout_create_from_counts(counts.data(), comm->value->ranks(), &layout));
    auto options = vescomm_buffer_options_init();
    options.type = VESCOMM_I64;
    options.sharing = sharing;
    check(vescomm_buffer_create(comm, layout, &options, &buffer));
    check(vescomm_layout_free(layout));
    return buffer;
}

vescomm_request_t *make_sum(vescomm_comm_t *comm, vescomm_buffer_t *buffer) {
    auto options = vescomm_request_options_init();
    options.algorithm = "two_phase";
    vescomm_request_t *request = nullptr;
    check(vescomm_all_reduce_create(comm, buffer, &options, &request));
    return request;
}

// Sums the buffer `times` times, and compares all results.
void run(vescomm_comm_t *comm, vescomm_buffer_t *buffer, vescomm_request_t *request, int times) {
    const int ranks = comm->value->ranks();
    vescomm_view_t view{};
    check(vescomm_buffer_get_data(buffer, &view));
    auto *data = static_cast<std::int64_t *>(view.data);
    for (int time = 0; time < times; ++time) {
        for (std::int64_t i = 0; i < view.elements; ++i) data[i] = comm->value->rank() + i * time;
        check(vescomm_request_start(request, nullptr));
        check(vescomm_request_wait(request));
        for (std::int64_t i = 0; i < view.elements; ++i)
            if (data[i] != ranks * (ranks - 1) / 2 + ranks * i * time)
                throw std::runtime_error("sum " + std::to_string(time) + " is wrong at " +
                                         std::to_string(i));
    }
}

TEST(Recycling, CreatesMoreRequestsThanThereAreChannels) {
    run_array_ranks(TestSetup{Kind::node, {0, 0}}, [](vescomm_comm_t *comm) {
        vescomm_buffer_t *buffer = make_buffer(comm, VESCOMM_PER_RANK);
        const int all = requests();
        for (int i = 0; i < all; ++i) {
            vescomm_request_t *request = nullptr;
            if (i % 100 == 0) {
                request = make_sum(comm, buffer);
                run(comm, buffer, request, 1 + i % 3);
            } else {
                check(vescomm_barrier_create(comm, nullptr, &request));
            }
            check(vescomm_request_free(request));
        }
        check(vescomm_buffer_free(buffer));
    });
}

class RecyclingAnywhere : public ::testing::TestWithParam<TestSetup> {};

// Only a few requests exist at a time, so few channels suffice. Some requests run often and some
// never, and every rank frees at its own times.
TEST_P(RecyclingAnywhere, NewUserSeesNoFlagsOfEarlierUsers) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        std::mt19937 common(5), own(static_cast<unsigned>(comm->value->rank()) + 6);
        struct Pair {
            vescomm_buffer_t *buffer;
            vescomm_request_t *request;
        };
        std::vector<Pair> live, left;
        const auto free_some = [&](std::size_t keep) {
            while (left.size() > keep) {
                std::swap(left.back(), left[own() % left.size()]);
                check(vescomm_request_free(left.back().request));
                check(vescomm_buffer_free(left.back().buffer));
                left.pop_back();
            }
        };
        for (int i = 0; i < 150; ++i) {
            vescomm_buffer_t *buffer = make_buffer(comm, VESCOMM_PER_RANK);
            live.push_back({buffer, make_sum(comm, buffer)});
            Pair &used = live[common() % live.size()];
            run(comm, used.buffer, used.request, static_cast<int>(common() % 4));
            if (live.size() < 4) continue;
            std::swap(live.back(), live[common() % live.size()]);
            left.push_back(live.back());
            live.pop_back();
            free_some(own() % 6);
        }
        EXPECT_LT(comm->value->numbers().next_channel(), 200u + 8u * comm->value->ranks());
        std::ranges::move(live, std::back_inserter(left));
        free_some(0);
    });
}

// Slabs that a node shares count their releases on a reused channel, too.
TEST_P(RecyclingAnywhere, SharedSlabCountsOnlyItsOwnReleases) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        for (int i = 0; i < 40; ++i) {
            vescomm_buffer_t *buffer = make_buffer(comm, VESCOMM_PER_NODE);
            vescomm_request_t *gather = nullptr;
            check(vescomm_all_gather_v_create(comm, buffer, nullptr, &gather));
            vescomm_view_t all{}, mine{};
            check(vescomm_buffer_get_data(buffer, &all));
            check(vescomm_buffer_get_shard(buffer, &mine));
            for (int time = 0; time < 5; ++time) {
                check(vescomm_buffer_acquire(buffer));
                auto *shard = static_cast<std::int64_t *>(mine.data);
                std::fill(shard, shard + mine.elements, i * 1000 + time * 100 + rank);
                check(vescomm_request_start(gather, nullptr));
                check(vescomm_request_wait(gather));
                const auto *data = static_cast<const std::int64_t *>(all.data);
                for (std::int64_t k = 0; k < all.elements; ++k)
                    if (data[k] != i * 1000 + time * 100 + k / 50)
                        throw std::runtime_error("slab " + std::to_string(i) + " is wrong");
                if (time % 2 == 0) check(vescomm_buffer_release(buffer));
            }
            check(vescomm_request_free(gather));
            check(vescomm_buffer_free(buffer));
        }
    });
}

TEST_P(RecyclingAnywhere, ContinuesFromHighRuns) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        Channels &channels = comm->value->numbers().channels();
        const std::uint32_t channel = channels.fresh();
        vescomm_buffer_t *buffer = make_buffer(comm, VESCOMM_PER_RANK);
        channels.give_back({channel, Channels::max_runs_of_free});
        vescomm_request_t *request = make_sum(comm, buffer);
        EXPECT_EQ(channels.offer(), "");
        run(comm, buffer, request, 5);
        check(vescomm_request_free(request));
        // The channel has fewer runs left than every user must get.
        EXPECT_EQ(channels.offer(), "");
        request = make_sum(comm, buffer);
        run(comm, buffer, request, 5);
        check(vescomm_request_free(request));
        EXPECT_NE(channels.offer(), "");
        check(vescomm_buffer_free(buffer));
    });
}

std::vector<TestSetup> setups() {
    std::vector<TestSetup> setups = {{Kind::node, {0, 0, 0}}, {Kind::loopback, {0, 0, 1}}};
#if VESCOMM_HAVE_UCX
    setups.push_back({Kind::ucx, {0, 1, 1}});
#endif
    return setups;
}

INSTANTIATE_TEST_SUITE_P(Everywhere, RecyclingAnywhere, ::testing::ValuesIn(setups()),
                         [](const auto &info) { return testing_support::name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal
