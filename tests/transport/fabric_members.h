// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Several communicators that share the connections of their processes.
#pragma once

#include <random>
#include <type_traits>

#include "transport/put_ranks.h"

namespace vescomm::internal::fabric_members {

using namespace put_ranks;

template <typename Fabric>
std::shared_ptr<Fabric> connect(Control &control, const Failure &failure) {
    std::vector<bool> peers(static_cast<std::size_t>(control.ranks()), true);
    peers[static_cast<std::size_t>(control.rank())] = false;
    const Deadline deadline = Deadline::after(patience_seconds);
    if constexpr (std::is_same_v<Fabric, TcpFabric>)
        return TcpFabric::connect(control, peers, {}, failure, deadline);
    else return Fabric::connect(control, peers, failure, deadline);
}

inline std::unique_ptr<Transport> make_transport(const std::shared_ptr<TcpFabric> &fabric,
                                                 std::uint32_t context, int rank,
                                                 const std::vector<int> &peers, Failure &failure,
                                                 std::function<void()> on_signal) {
    return make_tcp_transport(fabric, context, rank, peers, failure, std::move(on_signal));
}
#if VESCOMM_HAVE_UCX
inline std::unique_ptr<Transport> make_transport(const std::shared_ptr<UcxFabric> &fabric,
                                                 std::uint32_t context, int rank,
                                                 const std::vector<int> &peers, Failure &failure,
                                                 std::function<void()> on_signal) {
    return make_ucx_transport(fabric, context, rank, peers, failure, std::move(on_signal));
}
#endif

// Runs `body` as each process, with its fabric.
template <typename Fabric, typename Body>
void run_processes(int processes, Body body) {
    const auto hub = std::make_shared<LocalControlHub>(processes);
    std::vector<std::thread> threads;
    for (int process = 0; process < processes; ++process)
        threads.emplace_back([&, process] {
            LocalControl control(hub, process);
            Failure failure;
            try {
                std::shared_ptr<Fabric> fabric = connect<Fabric>(control, failure);
                body(control, std::move(fabric));
            } catch (const Error &error) {
                ADD_FAILURE() << "process " << process << ": " << error.what();
                control.fail(error.status, error.what());
            }
        });
    for (std::thread &thread : threads) thread.join();
}

// One communicator of two processes, on a shared fabric.
struct Member {
    template <typename Fabric>
    Member(const std::shared_ptr<Fabric> &fabric, std::uint32_t context, int rank,
           const std::vector<int> &peers)
        : rank(rank),
          transport(make_transport(fabric, context, rank, peers, failure, [this] { ++wakes; })) {}

    void wait_for(int peer, SignalName signal, std::uint64_t value) {
        const Deadline deadline = Deadline::after(patience_seconds);
        while (transport->signalled(peer, signal) < value) {
            failure.check();
            if (deadline.expired()) throw Error(VESCOMM_ERROR_TIMEOUT, "the test took too long");
            if (!transport->progress()) std::this_thread::yield();
        }
    }

    const int rank;
    Failure failure;
    std::atomic<int> wakes{0};
    std::vector<std::byte> arena;
    std::unique_ptr<Transport> transport;
};

inline constexpr std::size_t arena_bytes = 2 << 20;

// Exchanges puts of all sizes with the other rank, and checks every byte.
inline void exchange(Member &self, unsigned seed, int rounds) {
    const int peer = 1 - self.rank;
    std::mt19937_64 mine(seed * 2 + static_cast<unsigned>(self.rank));
    std::mt19937_64 theirs(seed * 2 + static_cast<unsigned>(peer));
    const auto size = [](std::mt19937_64 &random) {
        return random() % 4 == 0 ? random() % arena_bytes : random() % 5000;
    };
    for (int round = 1; round <= rounds; ++round) {
        const std::uint64_t number = static_cast<std::uint64_t>(round);
        const auto source = make_bytes(seed + number, size(mine));
        const std::size_t expected = size(theirs);
        std::atomic<std::uint32_t> pending{1};
        self.transport->put(
            {peer, source.data(), 1, 0, source.size(), {seed, 1}, number, &pending});
        self.wait_for(peer, {seed, 1}, number);
        ASSERT_EQ(first_difference(self.arena.data(), seed + number, expected), expected);
        // From here on the arena may be written again and the source destroyed.
        self.transport->signal(peer, {seed, 2}, number);
        self.wait_for(peer, {seed, 2}, number);
        while (pending.load() > 0)
            if (!self.transport->progress()) std::this_thread::yield();
    }
}

inline std::string offer(Member &self) {
    self.arena.assign(arena_bytes, std::byte{0});
    return self.transport->offer(1, self.arena.data(), arena_bytes);
}

// Collective: lets both sides of a communicator of two processes put into the arena of the other.
inline void share(Member &self, Control &control) {
    const auto offers = control.all_gather("offer", offer(self), Deadline::after(patience_seconds));
    const int peer = 1 - self.rank;
    // The ranks of the communicator may be in reverse order.
    self.transport->accept(1, peer, offers[static_cast<std::size_t>(1 - control.rank())]);
    control.all_gather("accepted", "", Deadline::after(patience_seconds));
}

}  // namespace vescomm::internal::fabric_members
