// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads of this process as ranks, each with a UCX transport of its own.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "base/error.h"
#include "support/local_control.h"
#include "transport/ucx.h"

namespace vescomm::ucx_ranks {

using testing_support::LocalControl;
using testing_support::LocalControlHub;

inline constexpr double patience_seconds = 20;

// One rank: a thread with its own transport and an arena that its peers may write.
struct Rank {
    Rank(std::shared_ptr<LocalControlHub> hub, int rank)
        : rank(rank), ranks(hub->ranks), control(hub, rank) {
        std::vector<bool> peers(ranks, true);
        peers[rank] = false;
        transport = make_ucx_transport(
            rank, ranks, peers, control, failure, [this] { ++wakes; },
            Deadline::after(patience_seconds));
    }

    void meet() { control.all_gather("meet", "", Deadline::after(patience_seconds)); }

    // Makes an arena the target of everyone's puts.
    void share(MemoryId memory, std::size_t bytes) {
        arena.assign(bytes, std::byte{0});
        const auto offers =
            control.all_gather("offers", transport->offer(memory, arena.data(), bytes),
                               Deadline::after(patience_seconds));
        for (int peer = 0; peer < ranks; ++peer)
            if (peer != rank) transport->accept(memory, peer, offers[peer]);
        meet();
    }

    template <typename Condition>
    void wait(Condition condition) {
        const Deadline deadline = Deadline::after(patience_seconds);
        while (!condition()) {
            failure.check();
            if (deadline.expired()) throw Error(VESCOMM_ERROR_TIMEOUT, "the test took too long");
            if (transport->progress() || !transport->arm()) continue;
            pollfd descriptor{transport->descriptor(), POLLIN, 0};
            poll(&descriptor, 1, 1000);
        }
    }

    void wait_for(int peer, SignalName signal, std::uint64_t value) {
        wait([&] { return transport->signalled(peer, signal) >= value; });
    }

    const int rank, ranks;
    LocalControl control;
    Failure failure;
    int wakes = 0;
    std::unique_ptr<Transport> transport;
    std::vector<std::byte> arena;
};

// Runs the body as every rank, and ends as a communicator does: farewell, then stop.
template <typename Body>
void run_ranks(int ranks, Body body) {
    const auto hub = std::make_shared<LocalControlHub>(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            LocalControl outside(hub, rank);
            try {
                Rank self(hub, rank);
                body(self);
                self.control.leave(Deadline::after(patience_seconds));
                self.transport->stop();
                EXPECT_FALSE(self.failure.broken()) << self.failure.why();
            } catch (const Error &error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
                outside.fail(error.status, error.what());
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
}

inline std::byte pattern(std::uint64_t seed, std::uint64_t index) {
    return static_cast<std::byte>((seed * 0x9e3779b97f4a7c15u + index * 0xff51afd7ed558ccdu) >> 56);
}

inline std::vector<std::byte> make_bytes(std::uint64_t seed, std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = pattern(seed, i);
    return made;
}

// Index of the first byte that differs, or `bytes`.
inline std::size_t first_difference(const std::byte *at, std::uint64_t seed, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i)
        if (at[i] != pattern(seed, i)) return i;
    return bytes;
}

}  // namespace vescomm::ucx_ranks
