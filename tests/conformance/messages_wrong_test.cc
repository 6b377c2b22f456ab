// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Errors of send and receive: sizes or types that differ, peers that make no call or destroy a
// running request, and invalid arguments.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::hurried;
using testing_support::Kind;
using testing_support::run_array_ranks;
using Floats = std::vector<float>;

std::vector<testing_support::TestSetup> setups() {
    std::vector<testing_support::TestSetup> all = {{Kind::node, {0, 0, 0}}};
    for (const Kind kind : testing_support::kinds_between_nodes()) all.push_back({kind, {0, 1, 1}});
    return all;
}

vescomm_status_t send(vescomm_comm_t *comm, const Floats &data, std::int64_t count, int peer,
                      vescomm_type_t type = VESCOMM_F32) {
    return vescomm_send(comm, data.data(), count, type, peer, nullptr, nullptr, nullptr);
}

vescomm_status_t receive(vescomm_comm_t *comm, Floats &data, std::int64_t count, int peer,
                         vescomm_type_t type = VESCOMM_F32) {
    return vescomm_receive(comm, data.data(), count, type, peer, nullptr, nullptr, nullptr);
}

void expect_error(vescomm_status_t status, vescomm_status_t expected,
                  const std::vector<std::string> &texts) {
    EXPECT_EQ(status, expected) << vescomm_get_last_error();
    for (const std::string &text : texts)
        EXPECT_NE(std::string(vescomm_get_last_error()).find(text), std::string::npos)
            << vescomm_get_last_error();
}

TEST(MismatchedMessages, AreReportedToBothAndNothingIsWritten) {
    struct Sides {
        std::int64_t sent, received;
        vescomm_type_t type;
        std::string text;
    };
    const Sides all[] = {
        {10, 11, VESCOMM_F32, "rank 1 receives 11 f32 from rank 0, which sent 10 f32"},
        {10, 10, VESCOMM_I32, "receives 10 i32 from rank 0, which sent 10 f32"},
        {10, 10, VESCOMM_C128, "receives 10 c128 from rank 0, which sent 10 f32"},
        {0, 5, VESCOMM_F32, "which sent 0 f32"},
        {5, 0, VESCOMM_F32, "receives 0 f32"},
        {9'000'000, 5, VESCOMM_F32, "which sent 4194304 or more f32"},
        {5, 9'000'000, VESCOMM_F32, "which sent 5 f32"},
        {9'000'000, 9'000'001, VESCOMM_F32, "4194304 or more f32"},
        {100'000, 200'000, VESCOMM_F32, "which sent 100000 f32"},
    };
    for (const auto &setup : setups()) {
        for (const Sides &sides : all) {
            SCOPED_TRACE(testing::Message() << sides.text << " on " << name_of(setup));
            run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                const int rank = comm->value->rank();
                Floats data(static_cast<std::size_t>(std::max(sides.sent, sides.received)), 7);
                if (rank == 2) return;
                vescomm_status_t status = VESCOMM_OK;
                // Eager sends complete before the mismatch is detected: a later call reports it.
                for (int i = 0; i < 10 && status == VESCOMM_OK; ++i)
                    status = rank == 0 ? send(comm, data, sides.sent, 1)
                                       : receive(comm, data, sides.received, 0, sides.type);
                expect_error(status, VESCOMM_ERROR_MISMATCH, {"rank 0", "rank 1", sides.text});
                EXPECT_TRUE(
                    std::all_of(data.begin(), data.end(), [](float value) { return value == 7; }));
            });
        }
    }
}

TEST(MismatchedMessages, AreReportedByRequestTest) {
    for (const auto &setup : setups()) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            Floats data(300'000, 7);
            if (rank == 2) return;
            vescomm_request_t *request = nullptr;
            if (rank == 0)
                check(vescomm_send(comm, data.data(), 300'000, VESCOMM_F32, 1, nullptr, nullptr,
                                   &request));
            else
                check(vescomm_receive(comm, data.data(), 200'000, VESCOMM_F32, 0, nullptr, nullptr,
                                      &request));
            vescomm_status_t status = VESCOMM_IN_PROGRESS;
            while (status == VESCOMM_IN_PROGRESS) status = vescomm_request_test(request);
            expect_error(status, VESCOMM_ERROR_MISMATCH, {"200000 f32", "300000 f32"});
            check(vescomm_request_free(request));
        });
    }
}

TEST(MismatchedMessages, AreReportedAfterEarlierMessagesSucceed) {
    for (const auto &setup : setups()) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            Floats data(1'000, 7);
            if (rank == 2) return;
            for (int i = 0; i < 20; ++i)
                check(rank == 0 ? send(comm, data, 10 + i, 1) : receive(comm, data, 10 + i, 0));
            vescomm_status_t status = VESCOMM_OK;
            for (int i = 0; i < 10 && status == VESCOMM_OK; ++i)
                status = rank == 0 ? send(comm, data, 50, 1) : receive(comm, data, 60, 0);
            expect_error(status, VESCOMM_ERROR_MISMATCH, {"60 f32", "50 f32"});
        });
    }
}

TEST(UnreceivedMessages, TimeoutNamesThePeer) {
    for (const auto &setup : setups()) {
        run_array_ranks(hurried(setup), [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            Floats data(500'000, 7);
            vescomm_status_t status = VESCOMM_OK;
            if (rank == 0) status = send(comm, data, 500'000, 2);
            else
                while (status == VESCOMM_OK) status = vescomm_comm_progress(comm);
            expect_error(status, VESCOMM_ERROR_TIMEOUT,
                         {"rank 0: send of 500000 f32 to rank 2 waited 1 s for rank 2"});
        });
    }
}

TEST(UnsentMessages, TimeoutNamesThePeer) {
    for (const auto &setup : setups()) {
        run_array_ranks(hurried(setup), [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            Floats data(10, 7);
            vescomm_status_t status = VESCOMM_OK;
            if (rank == 1) status = receive(comm, data, 10, 2);
            else
                while (status == VESCOMM_OK) status = vescomm_comm_progress(comm);
            expect_error(status, VESCOMM_ERROR_TIMEOUT,
                         {"rank 1: receive of 10 f32 from rank 2 waited 1 s for rank 2"});
        });
    }
}

TEST(UnsentMessages, TimeoutOfAReceiveFromAnySourceSaysSo) {
    for (const auto &setup : setups()) {
        run_array_ranks(hurried(setup), [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            Floats data(10, 7);
            auto options = vescomm_call_options_init();
            options.tag = 5;
            // A message with another tag.
            if (rank == 0) check(send(comm, data, 10, 1));
            vescomm_status_t status = VESCOMM_OK;
            if (rank == 1)
                status = vescomm_receive(comm, data.data(), 10, VESCOMM_F32, VESCOMM_ANY_SOURCE,
                                         &options, nullptr, nullptr);
            else
                while (status == VESCOMM_OK) status = vescomm_comm_progress(comm);
            expect_error(status, VESCOMM_ERROR_TIMEOUT,
                         {"rank 1: receive of 10 f32 from any rank with tag 5 waited 1 s for any "
                          "rank; look there first"});
        });
    }
}

// A wait for a certain rank that has left ends after two seconds.
TEST(UnsentMessages, OfAnySourceAreAwaitedUntilTheTimeoutIfAllOtherRanksHaveLeft) {
    for (auto setup : setups()) {
        const int seconds = setup.kind == Kind::node ? 3 : 1;
        setup.config.timeout_seconds = seconds;
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            if (comm->value->rank() != 1) return;
            Floats data(10, 7);
            // The others wait in finalize() until the same timeout.
            expect_error(receive(comm, data, 10, VESCOMM_ANY_SOURCE), VESCOMM_ERROR_TIMEOUT,
                         {" waited " + std::to_string(seconds) + " s for "});
        });
    }
}

// One thread waits, and another thread of the same rank sends.
TEST(UnsentMessages, OfAnySourceMayComeFromTheOwnRankWhenAllOthersHaveLeft) {
    for (const auto &setup : setups()) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            if (comm->value->rank() != 1) return;
            Floats source(10, 3), output(10, 7);
            vescomm_request_t *request = nullptr;
            check(vescomm_receive(comm, output.data(), 10, VESCOMM_F32, VESCOMM_ANY_SOURCE, nullptr,
                                  nullptr, &request));
            std::thread waiting([&] { EXPECT_EQ(vescomm_request_wait(request), VESCOMM_OK); });
            for (const int other : {0, 2})
                while (!comm->value->control().has_left(other)) check(vescomm_comm_progress(comm));
            check(send(comm, source, 10, 1));
            waiting.join();
            EXPECT_EQ(output, source);
            check(vescomm_request_free(request));
        });
    }
}

// Rank 0 keeps messages that it does not receive until it may keep no more: rank 1 is innocent.
TEST(UnreceivedMessages, TimeoutNamesTheRankThatKeepsTooMany) {
    for (auto setup : {testing_support::TestSetup{Kind::node, {0, 0}},
                       testing_support::TestSetup{Kind::tcp, {0, 1}}}) {
        const int peer = setup.kind == Kind::node ? 1 : VESCOMM_ANY_SOURCE;
        setup.config.timeout_seconds = 5;  // the last 20 MiB come within it
        std::atomic<std::size_t> completed{0};
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            constexpr std::int64_t count = 1 << 20;
            constexpr std::size_t messages = (256 << 20) / (count * sizeof(float)) + 4;
            Floats data(count, 7);
            auto options = vescomm_call_options_init();
            vescomm_status_t status = VESCOMM_OK;
            if (comm->value->rank() == 1) {
                options.tag = 5;
                std::vector<vescomm_request_t *> requests(messages);
                for (auto &request : requests)
                    check(vescomm_send(comm, data.data(), count, VESCOMM_F32, 0, &options, nullptr,
                                       &request));
                while (status >= VESCOMM_OK) {
                    status = vescomm_request_test(requests[completed]);
                    if (status == VESCOMM_OK) ++completed;
                }
                for (auto &request : requests) check(vescomm_request_free(request));
            } else {
                options.tag = 6;
                vescomm_request_t *request = nullptr;
                check(vescomm_receive(comm, data.data(), 1, VESCOMM_F32, peer, &options, nullptr,
                                      &request));
                while (status >= VESCOMM_OK && completed < messages - 10)
                    status = vescomm_request_test(request);
                status = vescomm_request_wait(request);
                check(vescomm_request_free(request));
            }
            expect_error(
                status, VESCOMM_ERROR_TIMEOUT,
                {"rank 0: receive of 1 f32 from ", " with tag 6 waited 5 s: this rank holds 25",
                 " messages that nobody has received, and the limit is 256.0 MiB, so the next "
                 "message of rank 1 cannot come; receive some of them first, for example "
                 "1048576 f32 with tag 5 from rank 1"});
        });
    }
}

// One rank has left, and another one sends later.
TEST(UnsentMessages, OfAnySourceMayComeFromTheRanksThatStay) {
    for (const auto &setup : setups()) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            Floats data(10, 7);
            if (rank == 0) return;
            if (rank == 1) {
                check(receive(comm, data, 10, VESCOMM_ANY_SOURCE));
            } else {
                while (!comm->value->control().has_left(0)) check(vescomm_comm_progress(comm));
                check(send(comm, data, 10, 1));
            }
        });
    }
}

// The message is found by its source and tag, and compared then. Others came before it.
TEST(MismatchedMessages, WithTagsAreReportedToBoth) {
    for (const auto &setup : setups()) {
        for (const int peer : {0, VESCOMM_ANY_SOURCE}) {
            run_array_ranks(setup, [&](vescomm_comm_t *comm) {
                const int rank = comm->value->rank();
                Floats data(20, 7);
                if (rank == 2) return;
                auto options = vescomm_call_options_init();
                vescomm_status_t status = VESCOMM_OK;
                // Four eager buffers: the receiver copies some of the messages.
                for (int i = 0; i < 12 && status == VESCOMM_OK; ++i) {
                    options.tag = rank == 0 ? i : 6;
                    status = rank == 0 ? vescomm_send(comm, data.data(), 10 + i, VESCOMM_F32, 1,
                                                      &options, nullptr, nullptr)
                                       : vescomm_receive(comm, data.data(), 15, VESCOMM_F32, peer,
                                                         &options, nullptr, nullptr);
                }
                while (status == VESCOMM_OK) status = vescomm_comm_progress(comm);
                expect_error(status, VESCOMM_ERROR_MISMATCH,
                             {"rank 1 receives 15 f32 from rank 0, which sent 16 f32"});
                EXPECT_EQ(data, Floats(20, 7));
            });
        }
    }
}

// A blocking send to the own rank that exceeds the eager buffers cannot complete.
TEST(UnreceivedMessages, TimeoutNamesTheOwnRankForASelfSend) {
    run_array_ranks(hurried({Kind::node, {0}}), [&](vescomm_comm_t *comm) {
        Floats data(500'000, 7);
        expect_error(send(comm, data, 500'000, 0), VESCOMM_ERROR_TIMEOUT,
                     {"waited 1 s for rank 0"});
    });
}

TEST(UnreceivedMessages, DoNotBlockOtherOperations) {
    for (const auto &setup : setups()) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            Floats data(10, 7);
            // The message stays in the eager buffers.
            if (comm->value->rank() == 0) check(send(comm, data, 10, 2));
            check(vescomm_barrier(comm));
        });
    }
}

TEST(MessageArguments, AreChecked) {
    for (const auto &setup : setups()) {
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            Floats data(10, 1);
            const auto expect_refused = [](vescomm_status_t status, const char *text) {
                expect_error(status, VESCOMM_ERROR_INVALID_ARGUMENT, {text});
            };
            char *odd = reinterpret_cast<char *>(data.data()) + 2;
            auto options = vescomm_call_options_init();
            expect_refused(send(comm, data, 10, VESCOMM_ANY_SOURCE), "peer is -2");
            for (const int peer : {-1, -3, 3}) {
                expect_refused(send(comm, data, 10, peer), "peer is");
                expect_refused(receive(comm, data, 10, peer), "peer is");
            }
            expect_refused(
                vescomm_send(comm, nullptr, 1, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                "vescomm_send: source is NULL");
            expect_refused(
                vescomm_receive(comm, nullptr, 1, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                "vescomm_receive: output is NULL");
            expect_refused(vescomm_send(comm, odd, 1, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                           "source is not aligned");
            expect_refused(vescomm_receive(comm, odd, 1, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                           "output is not aligned");
            expect_refused(send(comm, data, -1, 0), "count is -1");
            expect_refused(send(comm, data, 1, 0, 99), "there is no");
            expect_refused(
                vescomm_send(nullptr, data.data(), 1, VESCOMM_F32, 0, nullptr, nullptr, nullptr),
                "comm");
            options.tag = -1;
            expect_refused(
                vescomm_send(comm, data.data(), 1, VESCOMM_F32, 0, &options, nullptr, nullptr),
                "vescomm_send: tag is -1; it must be from 0 to 2147483647");
            expect_refused(
                vescomm_receive(comm, data.data(), 1, VESCOMM_F32, 0, &options, nullptr, nullptr),
                "vescomm_receive: tag is -1");
            options.tag = 1;
            expect_refused(vescomm_all_reduce(comm, data.data(), data.data(), 1, VESCOMM_F32,
                                              VESCOMM_SUM, &options, nullptr, nullptr),
                           "vescomm_all_reduce: takes no tag; leave it zero");
            options.tag = 0;
            options.factor = 2;
            expect_refused(
                vescomm_send(comm, data.data(), 1, VESCOMM_F32, 0, &options, nullptr, nullptr),
                "factor");
            options.factor = 0;
            options.algorithm = "magic";
            expect_refused(
                vescomm_send(comm, data.data(), 1, VESCOMM_F32, 0, &options, nullptr, nullptr),
                "magic");
            vescomm_request_t *request = nullptr;
            check(vescomm_group_begin(comm));
            expect_refused(
                vescomm_send(comm, data.data(), 1, VESCOMM_F32, 0, nullptr, nullptr, &request),
                "group");
            check(vescomm_group_end(comm, nullptr));
            // Rejected calls do not advance the message count.
            const int rank = comm->value->rank();
            const int left = (rank + 2) % 3, right = (rank + 1) % 3;
            data[0] = static_cast<float>(rank);
            check(send(comm, data, 1, right));
            check(receive(comm, data, 1, left));
            EXPECT_EQ(data[0], static_cast<float>(left));
        });
    }
}

TEST(MessageRequests, DestroyingARunningRequestBreaksTheCommunicator) {
    std::barrier meeting(2);
    run_array_ranks({Kind::node, {0, 0}}, [&](vescomm_comm_t *comm) {
        Floats data(10, 1);
        if (comm->value->rank() == 0) {
            vescomm_request_t *request = nullptr;
            check(
                vescomm_receive(comm, data.data(), 10, VESCOMM_F32, 1, nullptr, nullptr, &request));
            delete request;
        }
        meeting.arrive_and_wait();
        vescomm_status_t status = VESCOMM_OK;
        for (int i = 0; i < 10 && status == VESCOMM_OK; ++i) status = send(comm, data, 10, 0);
        expect_error(status, VESCOMM_ERROR_ABORTED,
                     {"rank 0 gave up receive of 10 f32 from rank 1"});
    });
}

TEST(MessageRequests, ExplanationNamesThePeer) {
    run_array_ranks({Kind::node, {0, 0}}, [&](vescomm_comm_t *comm) {
        Floats data(10, 1);
        const bool sends = comm->value->rank() == 0;
        vescomm_request_t *request = nullptr;
        if (sends)
            check(vescomm_send(comm, data.data(), 10, VESCOMM_F32, 1, nullptr, nullptr, &request));
        else
            check(
                vescomm_receive(comm, data.data(), 10, VESCOMM_F32, 0, nullptr, nullptr, &request));
        const char *text = nullptr;
        check(vescomm_request_explain(request, &text));
        EXPECT_EQ(std::string(text).find(sends ? "send of 10 f32 to rank 1: eager_buffers"
                                               : "receive of 10 f32 from rank 0: eager_buffers"),
                  0u)
            << text;
        check(vescomm_request_wait(request));
        check(vescomm_request_free(request));
    });
}

}  // namespace
}  // namespace vescomm::internal
