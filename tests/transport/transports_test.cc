// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Selection of the transport between nodes.
#include "transport/transports.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "support/local_control.h"

namespace vescomm::internal {
namespace {

using testing_support::LocalControl;
using testing_support::LocalControlHub;

struct Outcome {
    std::string name;  // name of the transport between nodes
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
};

// Two ranks on two nodes, each with its options.
std::vector<Outcome> make(const std::vector<TransportOptions> &options) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    std::vector<Outcome> outcomes(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            const auto at = static_cast<std::size_t>(rank);
            LocalControl control(hub, rank);
            Failure failure;
            try {
                const Transports made =
                    make_transports(Nodes::from_numbers(std::vector<int>{0, 1}), control, failure,
                                    {}, Deadline::after(20), options[at]);
                outcomes[at].name = made.inter_node.at(0)->name();
                control.leave(Deadline::after(20));
            } catch (const Error &error) {
                outcomes[at] = {"", error.status, error.what()};
                control.fail(error.status, error.what());
            }
        });
    for (std::thread &thread : threads) thread.join();
    return outcomes;
}

TEST(Transports, AreTcpWithoutRdma) {
    if (!expects_tcp_links("auto")) GTEST_SKIP() << "this machine has RDMA";
    for (const Outcome &outcome : make({{}, {}})) EXPECT_EQ(outcome.name, "tcp") << outcome.why;
}

TEST(Transports, AreTcpWithEncryption) {
    const TransportOptions encrypted{"auto", true};
    for (const Outcome &outcome : make({encrypted, encrypted}))
        EXPECT_EQ(outcome.name, "tcp") << outcome.why;
}

TEST(Transports, FollowTheChoiceOfTheUser) {
    for (const Outcome &outcome : make({{"tcp", false}, {"tcp", false}}))
        EXPECT_EQ(outcome.name, "tcp") << outcome.why;
    for (const Outcome &outcome : make({{"ucx", false}, {"ucx", false}})) {
#if VESCOMM_HAVE_UCX
        EXPECT_EQ(outcome.name, "ucx") << outcome.why;
#else
        EXPECT_EQ(outcome.status, VESCOMM_ERROR_UNSUPPORTED) << outcome.why;
#endif
    }
}

TEST(Transports, UcxWithEncryptionIsUnsupported) {
    for (const Outcome &outcome : make({{"ucx", true}, {"ucx", true}})) {
        EXPECT_EQ(outcome.status, VESCOMM_ERROR_UNSUPPORTED);
        EXPECT_NE(outcome.why.find("VESCOMM_TRANSPORT=tcp"), std::string::npos) << outcome.why;
    }
}

TEST(Transports, DifferentOptionsAreAMismatch) {
    const std::vector<std::vector<TransportOptions>> cases = {{{"tcp", false}, {"ucx", false}},
                                                              {{"auto", false}, {"tcp", false}},
                                                              {{"auto", false}, {"auto", true}}};
    for (const auto &options : cases)
        for (const Outcome &outcome : make(options)) {
            EXPECT_EQ(outcome.status, VESCOMM_ERROR_MISMATCH);
            EXPECT_NE(outcome.why.find("rank 1 has VESCOMM_TRANSPORT="), std::string::npos)
                << outcome.why;
        }
}

}  // namespace
}  // namespace vescomm::internal
