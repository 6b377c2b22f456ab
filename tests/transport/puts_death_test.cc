// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A peer on another node that is killed. The peer is a separate process: this binary, which runs
// the disabled test below, because UCX must not be used after a fork without exec.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <tuple>

#include "base/error.h"
#include "transport/put_ranks.h"

extern char **environ;

namespace vescomm::internal {
namespace {

using put_ranks::make_inter_node;
using put_ranks::NetworkKind;

constexpr double patience_seconds = 30;
constexpr std::size_t arena_bytes = 64 << 20;
constexpr const char *inter_node_variable = "VESCOMM_TEST_PUTS_WIRE";
constexpr const char *descriptor_variable = "VESCOMM_TEST_PUTS_PEER";

// The control plane of two processes: a pair of sockets. Both sides make the same calls.
class SocketControl : public Control {
public:
    SocketControl(int rank, int socket) : rank_(rank), socket_(socket) {}

    int rank() const override { return rank_; }
    int ranks() const override { return 2; }

    void start_all_gather(std::string_view, std::string_view bytes) override {
        const std::uint64_t size = bytes.size();
        write_all(&size, sizeof size);
        write_all(bytes.data(), bytes.size());
        own_ = bytes;
    }
    // Blocks, because nothing else needs progress here.
    std::optional<std::vector<std::string>> test_all_gather() override {
        std::uint64_t theirs = 0;
        read_all(&theirs, sizeof theirs);
        std::string received(theirs, '\0');
        read_all(received.data(), received.size());
        std::vector<std::string> all{own_, received};
        if (rank_ == 1) std::swap(all[0], all[1]);
        return all;
    }
    [[noreturn]] void expire_all_gather(double) override {
        throw Error(VESCOMM_ERROR_INTERNAL, "a pair of sockets does not expire");
    }
    void on_event(std::function<void()>) override {}

    FrameKey derive_key(std::string_view purpose) const override {
        return derived_key("the secret of the test", purpose);
    }
    std::string local_address() const override { return "127.0.0.1"; }
    void listen(Listener) override {}
    void fail(vescomm_status_t, const std::string &) noexcept override {}
    void start_leave() override {}
    bool test_leave() override { return true; }
    void end_leave() noexcept override {}
    bool has_left(int) const override { return false; }
    bool any_has_left() const override { return false; }
    void wait_event(std::uint64_t, Clock::time_point) override {}
    std::uint64_t events() const override { return 0; }

private:
    void write_all(const void *bytes, std::size_t size) {
        for (auto *at = static_cast<const char *>(bytes); size > 0;) {
            const ssize_t written = send(socket_, at, size, MSG_NOSIGNAL);
            if (written <= 0) throw Error(VESCOMM_ERROR_PEER_FAILED, "the socket is closed");
            at += written;
            size -= static_cast<std::size_t>(written);
        }
    }

    void read_all(void *bytes, std::size_t size) {
        for (auto *at = static_cast<char *>(bytes); size > 0;) {
            const ssize_t got = read(socket_, at, size);
            if (got <= 0) throw Error(VESCOMM_ERROR_PEER_FAILED, "the socket is closed");
            at += got;
            size -= static_cast<std::size_t>(got);
        }
    }

    const int rank_;
    const int socket_;
    std::string own_;
};

// Run by both ranks: share an arena, and keep a large and a small put to the other under way until
// the communicator fails or the process is killed.
class Talker {
public:
    Talker(NetworkKind network, int rank, int socket)
        : peer_(1 - rank), control_(rank, socket), arena_(arena_bytes) {
        transport =
            make_inter_node(network, control_, failure, {}, Deadline::after(patience_seconds));
        const auto offers = control_.all_gather(
            "", transport->offer(1, arena_.data(), arena_.size()), Deadline::after(1));
        transport->accept(1, peer_, offers[peer_]);
        control_.all_gather("", "", Deadline::after(1));
    }

    void talk() {
        if (pending.load() > 0) return;
        pending.store(2);
        transport->put({peer_, arena_.data(), 1, 0, arena_.size(), {0, 0}, ++round_, &pending});
        transport->put({peer_, arena_.data(), 1, 8, 100, {0, 1}, round_, &pending});
    }

    // Sleeps when there is nothing to do, so that the test detects a death that causes no wake-up.
    void progress() {
        if (transport->progress() || !transport->arm()) return;
        pollfd descriptor{transport->descriptor(), POLLIN, 0};
        poll(&descriptor, 1, 1000);
    }

    std::uint64_t observed() const { return transport->signalled(peer_, {0, 1}); }

    Failure failure;
    std::unique_ptr<Transport> transport;
    std::atomic<std::uint32_t> pending{0};

private:
    const int peer_;
    SocketControl control_;
    std::vector<std::byte> arena_;
    std::uint64_t round_ = 0;
};

// The peer: puts if the environment says so, until it is killed.
TEST(PutsDeath, DISABLED_Peer) {
    const char *descriptor = std::getenv(descriptor_variable);
    ASSERT_NE(descriptor, nullptr);
    const auto network = static_cast<NetworkKind>(std::atoi(std::getenv(inter_node_variable)));
    Talker talker(network, 1, std::atoi(descriptor));
    const bool talks = std::getenv("VESCOMM_TEST_PUTS_TALK") != nullptr;
    while (!talker.failure.broken()) {
        if (talks) talker.talk();
        talker.progress();
    }
}

struct Spawned {
    Spawned(NetworkKind network, bool talks) {
        int sockets[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        fcntl(sockets[1], F_SETFD, 0);
        socket = sockets[0];

        std::vector<std::string> variables;
        for (char **variable = environ; *variable != nullptr; ++variable)
            variables.emplace_back(*variable);
        variables.push_back(std::string(descriptor_variable) + "=" + std::to_string(sockets[1]));
        variables.push_back(std::string(inter_node_variable) + "=" +
                            std::to_string(static_cast<int>(network)));
        if (talks) variables.emplace_back("VESCOMM_TEST_PUTS_TALK=1");
        std::vector<char *> environment;
        for (std::string &variable : variables) environment.push_back(variable.data());
        environment.push_back(nullptr);

        std::string arguments[] = {"peer", "--gtest_filter=PutsDeath.DISABLED_Peer",
                                   "--gtest_also_run_disabled_tests", "--gtest_brief=1"};
        char *pointers[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                            arguments[3].data(), nullptr};
        EXPECT_EQ(
            posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, pointers, environment.data()),
            0);
        close(sockets[1]);
    }

    ~Spawned() {
        kill_and_reap();
        close(socket);
    }

    void kill_and_reap() {
        if (process <= 0) return;
        kill(process, SIGKILL);
        waitpid(process, nullptr, 0);
        process = -1;
    }

    pid_t process = -1;
    int socket = -1;
};

class PutsDeath : public testing::TestWithParam<std::tuple<NetworkKind, bool>> {};

TEST_P(PutsDeath, OfAPeerFailsTheCommunicatorAndStopReturns) {
    const auto [network, talks] = GetParam();
    const put_ranks::Environment environment(network);
    Spawned peer(network, talks);
    Talker self(network, 0, peer.socket);
    const Deadline deadline = Deadline::after(patience_seconds);
    while (talks && self.observed() < 2 && !self.failure.broken() && !deadline.expired()) {
        self.talk();
        self.progress();
    }
    ASSERT_FALSE(self.failure.broken()) << self.failure.why();
    if (talks) {
        ASSERT_GE(self.observed(), 2u);
    }

    peer.kill_and_reap();
    while (!self.failure.broken() && !deadline.expired()) {
        if (talks) self.talk();
        self.progress();
    }
    ASSERT_TRUE(self.failure.broken());
    EXPECT_EQ(self.failure.status(), VESCOMM_ERROR_PEER_FAILED);
    EXPECT_NE(self.failure.why().find("to rank 1 over "), std::string::npos) << self.failure.why();

    self.transport->forget(1);
    self.transport->stop();
    EXPECT_EQ(self.pending.load(), 0u);
    EXPECT_FALSE(deadline.expired());
}

// Without puts over UCX's TCP by rendezvous: when the peer dies, UCX 1.13 ends the process by an
// assertion about once in a hundred times (docs/configuration.md).
std::vector<std::tuple<NetworkKind, bool>> idle_and_busy() {
    std::vector<std::tuple<NetworkKind, bool>> cases;
    for (const NetworkKind network : put_ranks::all_networks()) {
        cases.emplace_back(network, false);
        if (network != NetworkKind::ucx_rendezvous) cases.emplace_back(network, true);
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(IdleAndBusy, PutsDeath, testing::ValuesIn(idle_and_busy()));

}  // namespace
}  // namespace vescomm::internal
