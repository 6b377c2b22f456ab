// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Which message a receive takes, compared with a model: all short sequences of sends and receives
// of a rank to itself, and long random ones.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::Kind;
using testing_support::run_array_ranks;

// A send or a receive of a rank, to or from itself.
struct Event {
    bool sends = false;
    bool any_source = false;  // receive
    int tag = 0;
};

// The rules: a message goes to the oldest receive that waits for its tag; a receive takes the
// oldest message with its tag. Source is the same for all.
struct Model {
    // `number`: of the send or the receive among its kind.
    void apply(const Event &event, std::size_t number) {
        auto &others = event.sends ? waiting : unexpected;
        const auto found =
            std::ranges::find_if(others, [&](const auto &other) { return other.tag == event.tag; });
        if (found == others.end()) {
            (event.sends ? unexpected : waiting).push_back({event.tag, number});
            return;
        }
        const std::size_t receive = event.sends ? found->number : number;
        taken.resize(std::max(taken.size(), receive + 1));
        taken[receive] = event.sends ? number : found->number;
        others.erase(found);
    }
    // The message of each receive, if it has one.
    std::vector<std::optional<std::size_t>> taken;

    struct Open {
        int tag;
        std::size_t number;
    };
    std::deque<Open> waiting, unexpected;
};

// Makes the calls of `events`, and those that complete them, and compares every result.
void run(vescomm_comm_t *comm, std::vector<Event> events) {
    Model model;
    std::size_t sends = 0, receives = 0;
    const auto apply = [&](const Event &event) {
        model.apply(event, event.sends ? sends++ : receives++);
    };
    for (const Event &event : events) apply(event);
    while (!model.waiting.empty()) {
        events.push_back({.sends = true, .any_source = false, .tag = model.waiting[0].tag});
        apply(events.back());
    }
    while (!model.unexpected.empty()) {
        events.push_back({.sends = false, .any_source = true, .tag = model.unexpected[0].tag});
        apply(events.back());
    }

    std::vector<std::int64_t> sources(sends), outputs(receives, -1);
    std::vector<vescomm_request_t *> requests;
    std::size_t send = 0, receive = 0;
    auto options = vescomm_call_options_init();
    for (const Event &event : events) {
        options.tag = event.tag;
        if (event.sends) {
            sources[send] = static_cast<std::int64_t>(send);
            check(vescomm_send(comm, &sources[send++], 1, VESCOMM_I64, 0, &options, nullptr,
                               &requests.emplace_back()));
        } else {
            check(vescomm_receive(comm, &outputs[receive++], 1, VESCOMM_I64,
                                  event.any_source ? VESCOMM_ANY_SOURCE : 0, &options, nullptr,
                                  &requests.emplace_back()));
        }
        check(vescomm_comm_progress(comm));
    }
    for (vescomm_request_t *request : requests) {
        check(vescomm_request_wait(request));
        check(vescomm_request_free(request));
    }
    ASSERT_EQ(model.taken.size(), receives);
    for (std::size_t i = 0; i < receives; ++i)
        ASSERT_EQ(outputs[i], static_cast<std::int64_t>(model.taken[i].value()));
}

// Six kinds of events, up to five of them: 9330 sequences.
TEST(MessageMatching, IsThatOfTheModelForAllShortSequences) {
    run_array_ranks({Kind::node, {0}}, [](vescomm_comm_t *comm) {
        constexpr int kinds = 6, max_events = 5;
        int sequences = 0;
        for (int length = 1, all = kinds; length <= max_events; ++length, all *= kinds) {
            for (int number = 0; number < all; ++number, ++sequences) {
                std::vector<Event> events;
                for (int rest = number, i = 0; i < length; ++i, rest /= kinds) {
                    const int kind = rest % kinds;
                    events.push_back({kind < 2, kind >= 4, kind % 2});
                }
                run(comm, events);
                if (testing::Test::HasFatalFailure()) {
                    ADD_FAILURE() << "sequence " << number << " of " << length << " events";
                    return;
                }
            }
        }
        EXPECT_EQ(sequences, 9330);
    });
}

// Many messages are unexpected: they do not fit into the eager buffers.
TEST(MessageMatching, IsThatOfTheModelForLongSequences) {
    run_array_ranks({Kind::node, {0}}, [](vescomm_comm_t *comm) {
        for (unsigned seed = 0; seed < 300; ++seed) {
            SCOPED_TRACE(seed);
            std::mt19937 random(seed);
            const unsigned sends_of_ten = 2 + random() % 7;
            std::vector<Event> events(1 + random() % 60);
            for (Event &event : events)
                event = {random() % 10 < sends_of_ten, random() % 2 == 0,
                         static_cast<int>(random() % 4)};
            run(comm, events);
            if (testing::Test::HasFatalFailure()) return;
        }
    });
}

}  // namespace
}  // namespace vescomm::internal
