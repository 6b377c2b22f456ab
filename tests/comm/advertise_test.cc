// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank that waits long advertises the signature of its call and reads the signatures that others
// advertise: seldom, and only to and from the ranks for which it waits, because both are expensive
// with many ranks.
#include <set>
#include <thread>

#include "support/array_ranks.h"

namespace vescomm::internal {
namespace {

using testing_support::LocalControl;
using testing_support::LocalControlHub;

// Loopback that counts accesses to advertised_flag.
class CountingTransport final : public Transport {
public:
    explicit CountingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

    std::atomic<int> advertised{0};
    mutable std::atomic<int> reads{0};
    std::set<int> peers;  // to which the rank advertised; written before `advertised`

    std::string_view name() const override { return inner_->name(); }
    bool maps(int peer) const noexcept override { return inner_->maps(peer); }
    bool puts(int peer) const noexcept override { return inner_->puts(peer); }
    bool supports(vescomm_memory_kind_t kind) const noexcept override {
        return inner_->supports(kind);
    }
    std::string share(std::uint64_t bytes, vescomm_sharing_t sharing,
                      std::uint64_t reserved) override {
        return inner_->share(bytes, sharing, reserved);
    }
    std::shared_ptr<Mapping> map(std::uint64_t bytes, vescomm_sharing_t sharing,
                                 const std::vector<std::string> &shared,
                                 Deadline deadline) override {
        return inner_->map(bytes, sharing, shared, deadline);
    }
    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes) override {
        return inner_->offer(memory, base, bytes);
    }
    void forget(MemoryId memory) noexcept override { inner_->forget(memory); }
    void put(const Put &put) noexcept override { inner_->put(put); }
    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override {
        inner_->signal(peer, signal, value);
        if (maps(peer) || signal.flag != advertised_flag) return;
        peers.insert(peer);
        ++advertised;
    }
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        if (!maps(peer) && signal.flag == advertised_flag) ++reads;
        return inner_->signalled(peer, signal);
    }
    bool progress() noexcept override { return inner_->progress(); }
    SignalBoard *board() noexcept override { return inner_->board(); }
    void stop() noexcept override { inner_->stop(); }

private:
    std::unique_ptr<Transport> inner_;
};

constexpr int ranks = 4;
constexpr int root = ranks - 1;

// Rank 0 waits for a broadcast of the root until `meanwhile`, which runs in another thread,
// returns. Each rank is a node.
void with_waiting_rank(const std::function<void(CountingTransport &, vescomm_comm &)> &meanwhile) {
    auto controls = std::make_shared<LocalControlHub>(ranks);
    auto network = make_loopback_network(Nodes::from_numbers(std::vector{0, 1, 2, 3}));
    std::vector<CountingTransport *> counting(ranks);
    std::vector<std::unique_ptr<vescomm_comm>> handles(ranks);
    const auto each = [](const std::function<void(int)> &body) {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
        for (std::thread &thread : threads) thread.join();
    };
    each([&](int rank) {
        const auto make = [&](auto &&...) {
            auto transport =
                std::make_unique<CountingTransport>(make_loopback_transport(network, rank));
            counting[rank] = transport.get();
            Transports transports;
            transports.intra_node = std::move(transport);
            return transports;
        };
        handles[rank] = std::make_unique<vescomm_comm>();
        handles[rank]->value = Communicator::create(std::make_unique<LocalControl>(controls, rank),
                                                    std::to_string(rank), Config(), make);
        handles[rank]->calls = Calls::create(handles[rank]->value);
    });
    std::atomic<bool> released{false};
    std::thread releaser([&] {
        meanwhile(*counting[0], *handles[0]);
        released = true;
        released.notify_all();
    });
    each([&](int rank) {
        if (rank > 0) released.wait(false);
        float data = rank == root ? 7 : 0;
        EXPECT_EQ(vescomm_broadcast(handles[rank].get(), &data, 1, VESCOMM_F32, root, nullptr,
                                    nullptr, nullptr),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(data, 7);
        handles[rank]->value->leave();
    });
    releaser.join();
}

TEST(Advertise, ReachesOnlyTheRanksThatARankWaitsFor) {
    with_waiting_rank([](CountingTransport &transport, vescomm_comm &) {
        while (transport.advertised == 0) std::this_thread::yield();
        EXPECT_EQ(transport.peers, std::set{root});
    });
}

TEST(Advertise, HappensAtMostOncePerLongestSleep) {
    with_waiting_rank([](CountingTransport &transport, vescomm_comm &comm) {
        const auto begin = Clock::now();
        const std::uint64_t enough = comm.value->counters().sleeps + 200;
        while (comm.value->counters().sleeps < enough) transport.board()->ring(0);
        const int reads = transport.reads;
        // Each time it reads the flag of the broadcast, and those of all slots, of three ranks.
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        EXPECT_LE(reads, (1 + seconds / 0.1) * 3 * (1 + inline_slots));
        EXPECT_LE(transport.advertised, 1);
    });
}

// A rank whose calls exchange nothing is many calls ahead.
TEST(Advertise, ReachesARankThatHasExchangedNothing) {
    std::vector<testing_support::TestSetup> setups;
    for (const auto kind : testing_support::kinds_between_nodes()) setups.push_back({kind, {0, 1}});
    for (const auto &setup : setups) {
        SCOPED_TRACE(name_of(setup));
        testing_support::run_array_ranks(setup, [](vescomm_comm_t *comm) {
            const std::int64_t nothing[] = {0, 0};
            std::vector<float> data(10, 1);
            vescomm_status_t status = VESCOMM_OK;
            for (int i = 0; i < 9 && comm->value->rank() == 1 && status == VESCOMM_OK; ++i)
                status =
                    vescomm_all_to_all_v(comm, data.data(), nothing, nullptr, data.data(), nothing,
                                         nullptr, VESCOMM_F32, nullptr, nullptr, nullptr);
            if (status == VESCOMM_OK)
                status = vescomm_all_reduce(comm, data.data(), data.data(), 10, VESCOMM_F32,
                                            VESCOMM_SUM, nullptr, nullptr, nullptr);
            EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
            for (const char *part : {"rank 0", "rank 1", "all_reduce", "all_to_all_v"})
                EXPECT_NE(std::string(vescomm_get_last_error()).find(part), std::string::npos)
                    << vescomm_get_last_error();
        });
    }
}

}  // namespace
}  // namespace vescomm::internal
