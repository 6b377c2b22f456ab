// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads of this process as ranks, each with its own inter-node transport.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "support/local_control.h"
#include "transport/tcp.h"
#if VESCOMM_HAVE_UCX
#include "transport/ucx.h"
#endif

namespace vescomm::internal::put_ranks {

using testing_support::LocalControl;
using testing_support::LocalControlHub;

inline constexpr double patience_seconds = 20;

// Networks that carry puts. Rendezvous: puts of 8 KiB and more are sent as over RDMA.
enum class NetworkKind { tcp, tcp_encrypted, ucx, ucx_rendezvous };

inline std::vector<NetworkKind> all_networks() {
#if VESCOMM_HAVE_UCX
    return {NetworkKind::tcp, NetworkKind::tcp_encrypted, NetworkKind::ucx,
            NetworkKind::ucx_rendezvous};
#else
    return {NetworkKind::tcp, NetworkKind::tcp_encrypted};
#endif
}

inline std::string name_of(NetworkKind network) {
    static constexpr const char *names[] = {"Tcp", "TcpEncrypted", "Ucx", "UcxByRendezvous"};
    return names[static_cast<int>(network)];
}

// UCX reads the environment when a transport is made.
struct Environment {
    explicit Environment(NetworkKind network) {
        if (network == NetworkKind::ucx_rendezvous) setenv("VESCOMM_UCX_RNDV_THRESH", "8k", 1);
    }
    ~Environment() { unsetenv("VESCOMM_UCX_RNDV_THRESH"); }
};

inline std::unique_ptr<Transport> make_inter_node(NetworkKind network, Control &control,
                                                  Failure &failure, std::function<void()> on_signal,
                                                  Deadline deadline) {
    std::vector<bool> peers(static_cast<std::size_t>(control.ranks()), true);
    peers[static_cast<std::size_t>(control.rank())] = false;
    std::vector<int> processes;
    for (int peer = 0; peer < control.ranks(); ++peer)
        processes.push_back(peer == control.rank() ? -1 : peer);
    std::unique_ptr<Transport> made;
    if (network == NetworkKind::tcp || network == NetworkKind::tcp_encrypted) {
        auto fabric = TcpFabric::connect(control, peers, {network == NetworkKind::tcp_encrypted},
                                         failure, deadline);
        made = make_tcp_transport(std::move(fabric), 0, control.rank(), processes, failure,
                                  std::move(on_signal));
    } else {
#if VESCOMM_HAVE_UCX
        made = make_ucx_transport(UcxFabric::connect(control, peers, failure, deadline), 0,
                                  control.rank(), processes, failure, std::move(on_signal));
#endif
    }
    control.all_gather("transports", "", deadline);
    return made;
}

// One rank: a thread with its own transport and an arena that its peers may write.
struct Rank {
    Rank(NetworkKind network, std::shared_ptr<LocalControlHub> hub, int rank)
        : rank(rank), ranks(hub->ranks), control(hub, rank) {
        transport = make_inter_node(
            network, control, failure, [this] { ++wakes; }, Deadline::after(patience_seconds));
    }

    // Returns when every rank has called it. Peers may depend on puts of this rank that have not
    // been sent, so it makes progress meanwhile, as a communicator does.
    void meet() {
        control.start_all_gather("meet", "");
        const auto all_called = [&] { return control.test_all_gather().has_value(); };
        if (!progress_until(all_called)) control.expire_all_gather(patience_seconds);
    }

    // The same without progress of the transport.
    void meet_idle() { control.all_gather("meet", "", Deadline::after(patience_seconds)); }

    void leave() {
        control.start_leave();
        progress_until([&] { return control.test_leave(); });
    }

    // Makes an arena the target of the puts of all peers.
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

    // Makes progress until the control plane reports `done`. Returns false when it took too long.
    template <typename Done>
    bool progress_until(Done done) {
        const Deadline deadline = Deadline::after(patience_seconds);
        for (;;) {
            const std::uint64_t seen = control.events();
            if (done()) return true;
            if (deadline.expired()) return false;
            constexpr std::chrono::milliseconds between_looks{1};
            if (!transport->progress()) control.wait_event(seen, Clock::now() + between_looks);
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
void run_ranks(NetworkKind network, int ranks, Body body) {
    const Environment environment(network);
    const auto hub = std::make_shared<LocalControlHub>(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            LocalControl outside(hub, rank);
            try {
                Rank self(network, hub, rank);
                body(self);
                self.leave();
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

}  // namespace vescomm::internal::put_ranks
