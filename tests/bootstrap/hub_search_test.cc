// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A process looks for rank 0 at several addresses, at some of which unauthenticated peers answer.
#include "bootstrap/hub_search.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <vector>

#include "bootstrap/acceptor.h"
#include "simulated_network.h"
#include "unauthenticated_peer.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

constexpr std::string_view secret = "the secret of the test";
constexpr int searching = 0, hub = 1, first_unauthenticated = 2;

std::vector<UnauthenticatedPeer::Manner> all_manners() {
    std::vector<UnauthenticatedPeer::Manner> manners;
    for (int each = 0; each < static_cast<int>(UnauthenticatedPeer::Manner::count); ++each)
        manners.push_back(static_cast<UnauthenticatedPeer::Manner>(each));
    return manners;
}

TcpAddress address_of(int process) {
    return {SimulatedNetwork::host(process), 29700};
}

class Search {
public:
    Search(SimulatedWorld &world, std::vector<TcpAddress> addresses, bool once)
        : network_(world, searching),
          search_(network_, std::move(addresses), secret, Claim{.ranks = 2},
                  HubSearch::Limits{.once = once},
                  HubSearch::Events{[this](HubSearch::Found found) {
                                        welcome = found.welcome;
                                        over_ = true;
                                    },
                                    [this, &world](const Error &why) {
                                        error = why;
                                        seconds = world.seconds();
                                        over_ = true;
                                    },
                                    nullptr}) {
        network_.post([this] { look(); });
    }

    std::string trouble() const { return search_.trouble(); }

    std::optional<std::string> welcome;
    std::optional<Error> error;
    double seconds = 0;  // of the error

private:
    void look() {
        if (over_) return;
        const Clock::time_point next = search_.tick();
        timer_ = network_.at(next, [this] { look(); });
    }

    SimulatedNetwork network_;
    HubSearch search_;
    std::unique_ptr<Timer> timer_;
    bool over_ = false;
};

// Welcomes every process that knows the secret, `wait` seconds after its own start at the earliest.
class Hub {
public:
    explicit Hub(SimulatedWorld &world, double wait = 0)
        : network_(world, hub),
          acceptor_(network_, secret,
                    [this](Acceptor::Joined joined) {
                        joined_.push_back(std::move(joined));
                        if (welcomes_) welcome(joined_.back());
                    }),
          timer_(network_.at(network_.now() + of_seconds(wait), [this] {
              welcomes_ = true;
              for (Acceptor::Joined &each : joined_) welcome(each);
          })) {
        acceptor_.listen(address_of(hub));
    }

private:
    static void welcome(Acceptor::Joined &joined) {
        std::string frame;
        joined.keys.encoder.append(frame, FrameType::welcome, "welcome");
        joined.stream->write(frame);
    }

    SimulatedNetwork network_;
    bool welcomes_ = false;
    std::deque<Acceptor::Joined> joined_;
    Acceptor acceptor_;
    std::unique_ptr<Timer> timer_;
};

// The connection breaks, so that the process comes again with a cookie, to which the hub answers
// late: it waits for another process.
TEST(HubSearch, WaitsForAHubThatWaitsAfterACookie) {
    for (int moment = 0; moment < 100; ++moment)
        for (const bool once : {false, true}) {
            SCOPED_TRACE(testing::Message() << moment << " times 0.1 ms, once " << once);
            SimulatedWorld world(7);
            const Hub patient(world, 100);
            const Search search(world, {address_of(hub)}, once);
            world.at(world.now() + moment * std::chrono::microseconds(100), -1,
                     [&] { world.reset(searching, hub); });
            world.run(150, [](int) {});
            EXPECT_FALSE(search.error) << search.error->what();
            EXPECT_EQ(search.welcome, "welcome") << search.trouble();
        }
}

// The hub starts late, and one of its addresses is that of another machine for this process.
TEST(HubSearch, AnswersAtOtherAddressesEndNoSearch) {
    for (const UnauthenticatedPeer::Manner manner : all_manners())
        for (const bool wrong_first : {true, false}) {
            SCOPED_TRACE(testing::Message()
                         << "manner " << static_cast<int>(manner) << ", first " << wrong_first);
            SimulatedWorld world(7);
            const UnauthenticatedPeer peer(world, first_unauthenticated,
                                           address_of(first_unauthenticated), manner);
            std::vector<TcpAddress> addresses{address_of(first_unauthenticated), address_of(hub)};
            if (!wrong_first) std::swap(addresses[0], addresses[1]);
            Search search(world, addresses, false);
            std::optional<Hub> late;
            world.at(world.now() + of_seconds(20), -1, [&] { late.emplace(world); });
            world.run(30, [](int) {});
            EXPECT_FALSE(search.error) << search.error->what();
            EXPECT_EQ(search.welcome, "welcome") << search.trouble();
        }
}

TEST(HubSearch, FailsAtOnceWhenOnlyOtherJobsAnswer) {
    for (const auto &[manner, words] :
         {std::pair{UnauthenticatedPeer::Manner::other_secret, "does not know this secret"},
          std::pair{UnauthenticatedPeer::Manner::other_version,
                    "speaks version 9 of the control protocol"}})
        for (const int peers : {1, 2}) {
            SimulatedWorld world(7);
            std::deque<UnauthenticatedPeer> all;
            std::vector<TcpAddress> addresses;
            for (int each = 0; each < peers; ++each) {
                addresses.push_back(address_of(first_unauthenticated + each));
                all.emplace_back(world, first_unauthenticated + each, addresses.back(), manner);
            }
            const Search search(world, addresses, false);
            world.run(30, [](int) {});
            ASSERT_TRUE(search.error) << search.trouble();
            EXPECT_EQ(search.error->status, VESCOMM_ERROR_MISMATCH);
            EXPECT_NE(std::string(search.error->what()).find(words), std::string::npos)
                << search.error->what();
            EXPECT_LT(search.seconds, 5);
        }
}

// Survivors look for a process that may have ended: another process has its port then.
TEST(HubSearch, AnUnauthenticatedPeerIsNoSurvivor) {
    for (const UnauthenticatedPeer::Manner manner : all_manners()) {
        SCOPED_TRACE(testing::Message() << "manner " << static_cast<int>(manner));
        SimulatedWorld world(7);
        const UnauthenticatedPeer peer(world, first_unauthenticated,
                                       address_of(first_unauthenticated), manner);
        const Search search(world, {address_of(first_unauthenticated)}, true);
        world.run(100, [](int) {});
        ASSERT_TRUE(search.error) << search.trouble();
        EXPECT_EQ(search.error->status, VESCOMM_ERROR_PEER_FAILED);
        // One that proves nothing may be a survivor that is suspended.
        const bool waits = manner == UnauthenticatedPeer::Manner::silent ||
                           manner == UnauthenticatedPeer::Manner::closing;
        EXPECT_LT(search.seconds, waits ? 65 : 2);
    }
}

}  // namespace
}  // namespace vescomm::internal
