// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Algorithms that VESCOMM_ALGORITHM forces, on arrays and on buffers.
#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;

testing_support::TestSetup forcing(const std::string &algorithms) {
    testing_support::TestSetup setup{Kind::node, {0, 0}};
    setup.config.algorithm = algorithms;
    return setup;
}

// Runs a sum of ten elements on arrays. Returns its explanation.
std::string explained(vescomm_comm_t *comm, const char *algorithm) {
    std::vector<float> data(10, 1);
    auto options = vescomm_call_options_init();
    options.algorithm = algorithm;
    vescomm_request_t *request = nullptr;
    check(vescomm_all_reduce(comm, data.data(), data.data(), 10, VESCOMM_F32, VESCOMM_SUM, &options,
                             nullptr, &request));
    const char *text = nullptr;
    check(vescomm_request_explain(request, &text));
    const std::string copy = text;
    check(vescomm_request_wait(request));
    EXPECT_EQ(data, std::vector<float>(10, 2));
    check(vescomm_request_free(request));
    return copy;
}

TEST(ForcedAlgorithm, IsUsedForArrays) {
    run_array_ranks(forcing("all_reduce=two_phase"), [](vescomm_comm_t *comm) {
        EXPECT_NE(explained(comm, nullptr).find("two_phase"), std::string::npos);
        EXPECT_NE(explained(comm, nullptr).find("VESCOMM_ALGORITHM asked for it by name"),
                  std::string::npos);
    });
}

TEST(ForcedAlgorithm, IsOverriddenByTheCaller) {
    run_array_ranks(forcing("all_reduce=two_phase"), [](vescomm_comm_t *comm) {
        EXPECT_NE(explained(comm, "flat").find("the caller asked for it by name"),
                  std::string::npos);
    });
}

TEST(ForcedAlgorithm, IsUsedForBuffersOrRefused) {
    run_array_ranks(forcing("all_gather_v=direct"), [](vescomm_comm_t *comm) {
        const Layout layout = Layout::from_counts(std::vector<std::int64_t>{3, 5});
        for (const vescomm_sharing_t sharing : {VESCOMM_PER_RANK, VESCOMM_PER_NODE}) {
            auto options = vescomm_buffer_options_init();
            options.sharing = sharing;
            vescomm_layout wanted{layout};
            vescomm_buffer_t *buffer = nullptr;
            check(vescomm_buffer_create(comm, &wanted, &options, &buffer));
            vescomm_request_t *request = nullptr;
            const vescomm_status_t status =
                vescomm_all_gather_v_create(comm, buffer, nullptr, &request);
            if (sharing == VESCOMM_PER_RANK) {
                check(status);
                const char *text = nullptr;
                check(vescomm_request_explain(request, &text));
                EXPECT_NE(std::string(text).find("direct, "), std::string::npos);
            } else {
                EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
                EXPECT_NE(std::string(vescomm_get_last_error()).find("VESCOMM_ALGORITHM: "),
                          std::string::npos);
            }
            check(vescomm_request_free(request));
            check(vescomm_buffer_free(buffer));
        }
    });
}

// A request on the buffer whose algorithm depends on the rank.
vescomm_status_t create_by_rank(vescomm_comm_t *comm, vescomm_buffer_t *buffer, const char *on_0,
                                const char *on_others, vescomm_request_t **request) {
    auto options = vescomm_request_options_init();
    options.algorithm = comm->value->rank() == 0 ? on_0 : on_others;
    return vescomm_all_gather_v_create(comm, buffer, &options, request);
}

// `inline` works through the staging buffer and takes no channel, `direct` works in the buffer and
// takes one: the ranks compare their calls all the same.
TEST(ForcedAlgorithm, ThatDiffersIsNamedForBuffersOnEveryPath) {
    run_array_ranks(testing_support::TestSetup{Kind::node, {0, 0, 0}}, [](vescomm_comm_t *comm) {
        vescomm_layout layout{Layout::from_counts(std::vector<std::int64_t>{3, 0, 5})};
        auto options = vescomm_buffer_options_init();
        options.sharing = VESCOMM_PER_RANK;
        vescomm_buffer_t *buffer = nullptr;
        check(vescomm_buffer_create(comm, &layout, &options, &buffer));
        const std::pair<const char *, const char *> pairs[] = {{"inline", "direct"},
                                                               {"direct", "inline"}};
        for (const auto &[on_0, on_others] : pairs) {
            vescomm_request_t *request = nullptr;
            EXPECT_EQ(create_by_rank(comm, buffer, on_0, on_others, &request),
                      VESCOMM_ERROR_MISMATCH);
            EXPECT_NE(std::string(vescomm_get_last_error())
                          .find(std::string("rank 0 and rank 1 disagree: the algorithm is ") +
                                on_0 + " on rank 0 and " + on_others + " on rank 1"),
                      std::string::npos)
                << vescomm_get_last_error();
            check(vescomm_request_free(request));
        }
        for (const char *same : {"inline", "direct"}) {
            vescomm_request_t *request = nullptr;
            check(create_by_rank(comm, buffer, same, same, &request));
            check(vescomm_request_start(request, nullptr));
            check(vescomm_request_wait(request));
            check(vescomm_request_free(request));
        }
        check(vescomm_buffer_free(buffer));
    });
}

}  // namespace
}  // namespace vescomm::internal
