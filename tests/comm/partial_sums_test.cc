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

}  // namespace
}  // namespace vescomm::internal::testing_support
