// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Requests on one memory share their partial sums: one that is started while another runs is
// refused, and nothing else happens.
#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

// The sums of this algorithm pass through partial sums.
struct Case {
    TestSetup setup;
    const char *algorithm;
};

std::vector<Case> cases() {
    std::vector<Case> cases;
    for (const Kind kind : kinds_between_nodes()) {
        cases.push_back({{kind, {0, 0, 1, 1}}, "direct"});
        cases.push_back({{kind, {0, 1, 2}}, "direct"});
        cases.push_back({{kind, {0, 0, 1}}, "ring"});
    }
    return cases;
}

// A buffer with a sum, in a memory with others.
class Sum {
public:
    Sum(vescomm_comm_t *comm, vescomm_memory_t *memory, int number, const char *algorithm)
        : ranks_(comm->value->ranks()), number_(number) {
        std::vector<std::int64_t> counts;
        for (int rank = 0; rank < ranks_; ++rank) counts.push_back(rank == 1 ? 0 : 3001);
        std::vector<std::int64_t>::size_type elements = 0;
        for (const std::int64_t count : counts) elements += static_cast<std::size_t>(count);
        vescomm_layout_t *layout = nullptr;
        check(vescomm_layout_create_from_counts(counts.data(), ranks_, &layout));
        const std::string name = "sum " + std::to_string(number);
        auto options = vescomm_buffer_options_init();
        options.memory = memory;
        options.offset_bytes = static_cast<std::uint64_t>(number) * bytes;
        options.name = name.c_str();
        check(vescomm_buffer_create(comm, layout, &options, &buffer_));
        check(vescomm_layout_free(layout));
        auto of_request = vescomm_request_options_init();
        of_request.algorithm = algorithm;
        check(vescomm_reduce_scatter_v_create(comm, buffer_, &of_request, &request));
        auto view = vescomm_view_t{};
        check(vescomm_buffer_get_data(buffer_, &view));
        all_ = {static_cast<float *>(view.data), elements};
        check(vescomm_buffer_get_shard(buffer_, &view));
        shard_ = {static_cast<float *>(view.data),
                  static_cast<std::size_t>(counts[static_cast<std::size_t>(comm->value->rank())])};
    }
    ~Sum() {
        vescomm_request_free(request);
        vescomm_buffer_free(buffer_);
    }
    Sum(const Sum &) = delete;
    Sum &operator=(const Sum &) = delete;

    void fill() { std::ranges::fill(all_, static_cast<float>(number_ + 1)); }
    void expect_sum() const {
        for (const float value : shard_)
            ASSERT_EQ(value, static_cast<float>(ranks_ * (number_ + 1)));
    }

    static constexpr std::uint64_t bytes = 64 << 10;
    vescomm_request_t *request = nullptr;

private:
    int ranks_, number_;
    vescomm_buffer_t *buffer_ = nullptr;
    std::span<float> all_, shard_;
};

class Memory {
public:
    explicit Memory(vescomm_comm_t *comm) {
        auto options = vescomm_memory_options_init();
        options.bytes = 2 * Sum::bytes;
        check(vescomm_memory_create(comm, &options, &value));
    }
    ~Memory() { vescomm_memory_free(value); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;

    vescomm_memory_t *value = nullptr;
};

TEST(PartialSums, AreUsedByOneRequestAtATime) {
    for (const Case &each : cases()) {
        SCOPED_TRACE(name_of(each.setup) + " " + each.algorithm);
        run_array_ranks(each.setup, [&](vescomm_comm_t *comm) {
            const Memory memory(comm);
            Sum a(comm, memory.value, 0, each.algorithm), b(comm, memory.value, 1, each.algorithm);
            for (int round = 0; round < 3; ++round) {
                a.fill();
                b.fill();
                Sum &first = round % 2 == 0 ? a : b, &second = round % 2 == 0 ? b : a;
                check(vescomm_request_start(first.request, nullptr));
                EXPECT_REFUSED(vescomm_request_start(second.request, nullptr),
                               "shares memory with the running reduce_scatter_v of \"sum " +
                                   std::to_string(round % 2) + "\"");
                EXPECT_EQ(vescomm_request_test(second.request), VESCOMM_OK);
                check(vescomm_request_wait(first.request));
                check(vescomm_request_start(second.request, nullptr));
                while (true) {
                    const vescomm_status_t status = vescomm_request_test(second.request);
                    if (status == VESCOMM_OK) break;
                    ASSERT_EQ(status, VESCOMM_IN_PROGRESS) << vescomm_get_last_error();
                }
                a.expect_sum();
                b.expect_sum();
            }
        });
    }
}

// The last user of the partial sums is gone.
TEST(PartialSums, AreFreeAfterTheirRequest) {
    run_array_ranks({Kind::loopback, {0, 1}}, [&](vescomm_comm_t *comm) {
        const Memory memory(comm);
        Sum a(comm, memory.value, 0, "direct");
        {
            Sum b(comm, memory.value, 1, "direct");
            b.fill();
            check(vescomm_request_start(b.request, nullptr));
            check(vescomm_request_wait(b.request));
            b.expect_sum();
        }
        a.fill();
        check(vescomm_request_start(a.request, nullptr));
        check(vescomm_request_wait(a.request));
        a.expect_sum();
    });
}

TEST(PartialSums, OfDifferentMemoriesAreIndependent) {
    for (const Case &each : cases()) {
        run_array_ranks(each.setup, [&](vescomm_comm_t *comm) {
            const Memory first(comm), second(comm);
            Sum a(comm, first.value, 0, each.algorithm), b(comm, second.value, 1, each.algorithm);
            a.fill();
            b.fill();
            check(vescomm_request_start(a.request, nullptr));
            check(vescomm_request_start(b.request, nullptr));
            check(vescomm_request_wait(a.request));
            check(vescomm_request_wait(b.request));
            a.expect_sum();
            b.expect_sum();
        });
    }
}

std::uint64_t partial_bytes(vescomm_memory_t *memory) {
    std::uint64_t bytes = 1;
    check(vescomm_memory_get_partial_bytes(memory, &bytes));
    return bytes;
}

using Layouts = std::vector<vescomm_layout_t *>;

// Shards of different sizes, from `first` elements on.
vescomm_layout_t *layout_of(int ranks, std::int64_t first) {
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < ranks; ++rank) counts.push_back(rank == 1 ? 0 : first + 1000 * rank);
    vescomm_layout_t *layout = nullptr;
    check(vescomm_layout_create_from_counts(counts.data(), ranks, &layout));
    return layout;
}

std::uint64_t predict(const vescomm_comm_t *comm, const std::vector<int> &nodes,
                      const Layouts &layouts, const vescomm_request_options_t &options,
                      vescomm_type_t type = VESCOMM_BF16) {
    std::uint64_t bytes = 0;
    check(vescomm_reduce_scatter_v_get_partial_bytes(
        comm, nullptr, comm != nullptr ? nullptr : nodes.data(), layouts.data(), layouts.size(),
        type, &options, &bytes));
    return bytes;
}

// Requests with these layouts in one memory have the partial sums that are predicted for it.
TEST(PartialSums, HaveThePredictedSize) {
    for (const Case &each : cases()) {
        SCOPED_TRACE(name_of(each.setup) + " " + each.algorithm);
        const std::vector<int> &nodes = each.setup.node_of;
        run_array_ranks(each.setup, [&](vescomm_comm_t *comm) {
            const int ranks = comm->value->ranks();
            const Layouts layouts{layout_of(ranks, 3000), layout_of(ranks, 9000)};
            auto wanted = vescomm_request_options_init();
            wanted.algorithm = each.algorithm;
            const std::uint64_t predicted = predict(comm, nodes, layouts, wanted);
            EXPECT_GT(predicted, 0u);
            EXPECT_EQ(predict(nullptr, nodes, layouts, wanted), predicted);
            EXPECT_EQ(predict(nullptr, std::vector<int>(nodes.size(), 0), {}, wanted), 0u);
            // The first memory has the partial sums from the beginning. The requests of the second
            // one allocate them: the smaller ones stay.
            for (const bool at_once : {true, false}) {
                auto given = vescomm_memory_options_init();
                given.bytes = 1 << 18;
                given.partial_bytes = at_once ? predicted : 0;
                vescomm_memory_t *memory = nullptr;
                check(vescomm_memory_create(comm, &given, &memory));
                EXPECT_EQ(partial_bytes(memory), given.partial_bytes);
                std::vector<vescomm_request_t *> requests;
                std::uint64_t expected = given.partial_bytes;
                for (vescomm_layout_t *layout : layouts) {
                    auto of_buffer = vescomm_buffer_options_init();
                    of_buffer.memory = memory;
                    of_buffer.type = VESCOMM_BF16;
                    vescomm_buffer_t *buffer = nullptr;
                    check(vescomm_buffer_create(comm, layout, &of_buffer, &buffer));
                    requests.emplace_back();
                    check(vescomm_reduce_scatter_v_create(comm, buffer, &wanted, &requests.back()));
                    check(vescomm_buffer_free(buffer));
                    if (!at_once) expected += predict(comm, nodes, {layout}, wanted);
                    EXPECT_EQ(partial_bytes(memory), expected);
                }
                if (!at_once) {
                    check(vescomm_request_free(requests.front()));
                    requests.front() = nullptr;
                    EXPECT_EQ(partial_bytes(memory), predicted);
                }
                for (vescomm_request_t *request : requests) check(vescomm_request_free(request));
                check(vescomm_memory_free(memory));
            }
            for (vescomm_layout_t *layout : layouts) check(vescomm_layout_free(layout));
        });
    }
}

// The request chooses its algorithm.
TEST(PartialSums, HaveThePredictedSizeWithTheChosenAlgorithm) {
    for (const std::vector<int> &nodes : {std::vector<int>{0, 0, 0}, {0, 0, 1, 1}, {0, 1, 2}})
        for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
            run_array_ranks({Kind::loopback, nodes}, [&](vescomm_comm_t *comm) {
                const Layouts layouts{layout_of(comm->value->ranks(), 100'000)};
                std::vector<float> sums(200'000);
                auto wanted = vescomm_request_options_init();
                wanted.output = sums.data();
                wanted.type = VESCOMM_F32;
                auto of_buffer = vescomm_buffer_options_init();
                of_buffer.type = type;
                auto given = vescomm_memory_options_init();
                given.bytes = 4 << 20;
                check(vescomm_memory_create(comm, &given, &of_buffer.memory));
                vescomm_buffer_t *buffer = nullptr;
                check(vescomm_buffer_create(comm, layouts[0], &of_buffer, &buffer));
                vescomm_request_t *request = nullptr;
                check(vescomm_reduce_scatter_v_create(comm, buffer, &wanted, &request));
                EXPECT_EQ(partial_bytes(of_buffer.memory),
                          predict(comm, nodes, layouts, wanted, type));
                check(vescomm_request_free(request));
                check(vescomm_buffer_free(buffer));
                check(vescomm_memory_free(of_buffer.memory));
                check(vescomm_layout_free(layouts[0]));
            });
}

// Ranks of a communicator that will have one of their own.
TEST(PartialSums, HaveTheSizePredictedForMembers) {
    const std::vector<int> nodes = {0, 0, 1, 1, 1};
    run_array_ranks({Kind::loopback, nodes}, [&](vescomm_comm_t *comm) {
        const std::vector<std::int32_t> members = {1, 2, 4};
        const Layouts layouts{layout_of(3, 100'000)};
        const auto wanted = vescomm_request_options_init();
        const auto predicted = [&](const std::int32_t *of, std::uint64_t *bytes) {
            return vescomm_reduce_scatter_v_get_partial_bytes(comm, of, nullptr, layouts.data(), 1,
                                                              VESCOMM_F32, &wanted, bytes);
        };
        std::uint64_t bytes = 0;
        check(predicted(members.data(), &bytes));
        EXPECT_EQ(bytes, predict(nullptr, {0, 1, 1}, layouts, wanted, VESCOMM_F32));
        EXPECT_GT(bytes, 0u);
        EXPECT_REFUSED(predicted(nullptr, &bytes), "the communicator has 5 ranks");
        const std::int32_t wrong[] = {0, 1, 5};
        EXPECT_REFUSED(predicted(wrong, &bytes), "no rank 5");
        EXPECT_REFUSED(vescomm_reduce_scatter_v_get_partial_bytes(
                           comm, nullptr, wrong, layouts.data(), 1, VESCOMM_F32, &wanted, &bytes),
                       "nodes was given with a communicator");
        EXPECT_REFUSED(
            vescomm_reduce_scatter_v_get_partial_bytes(nullptr, wrong, nullptr, layouts.data(), 1,
                                                       VESCOMM_F32, &wanted, &bytes),
            "members was given without a communicator");
        check(vescomm_layout_free(layouts[0]));
    });
}

TEST(PartialSums, AreNotPredictedForWrongArguments) {
    vescomm_layout_t *two = layout_of(2, 10), *three = layout_of(3, 10);
    const vescomm_layout_t *both[] = {two, three};
    std::uint64_t bytes = 0;
    const auto predicted = [&](std::size_t count, vescomm_type_t type, std::uint64_t *result) {
        return vescomm_reduce_scatter_v_get_partial_bytes(nullptr, nullptr, nullptr, both, count,
                                                          type, nullptr, result);
    };
    EXPECT_EQ(predicted(1, VESCOMM_TYPE_DEFAULT, &bytes), VESCOMM_OK);
    EXPECT_REFUSED(predicted(2, VESCOMM_F32, &bytes), "layout 1 is for 3 ranks");
    EXPECT_REFUSED(predicted(1, 99, &bytes), "no type 99");
    EXPECT_REFUSED(predicted(1, VESCOMM_F32, nullptr), "bytes is NULL");
    check(vescomm_layout_free(two));
    check(vescomm_layout_free(three));
}

// Ranks that ask for different partial sums of one memory.
TEST(PartialSums, MustBeTheSameOnAllRanks) {
    run_array_ranks({Kind::loopback, {0, 1}}, [&](vescomm_comm_t *comm) {
        auto given = vescomm_memory_options_init();
        given.bytes = 100;
        given.partial_bytes = comm->value->rank() == 0 ? 10 : 0;
        vescomm_memory_t *memory = nullptr;
        EXPECT_EQ(vescomm_memory_create(comm, &given, &memory), VESCOMM_ERROR_MISMATCH);
    });
}

}  // namespace
}  // namespace vescomm::internal::testing_support
