// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Sockets of the operating system where it lacks something: descriptors of a process that accepts
// connections, or space in the queue of a listener.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include "bootstrap/os_network.h"

namespace vescomm::internal {
namespace {

// No descriptor is free while an object exists.
class NoDescriptors {
public:
    NoDescriptors() {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
        const Descriptor next(fcntl(0, F_DUPFD_CLOEXEC, 0));  // the lowest that is free
        rlimit none = before_;
        none.rlim_cur = static_cast<rlim_t>(next.get());
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    ~NoDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

private:
    rlimit before_{};
};

// The connections that a listener accepts. Released in the network's thread.
class Accepted {
public:
    Network::Accepted function() {
        return [this](std::unique_ptr<Stream> stream) {
            const std::lock_guard lock(mutex_);
            streams_.push_back(std::move(stream));
            changed_.notify_all();
        };
    }
    void wait_for(std::size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return streams_.size() == count; });
    }
    std::size_t count() {
        const std::lock_guard lock(mutex_);
        return streams_.size();
    }
    void release() {
        const std::lock_guard lock(mutex_);
        streams_.clear();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<Stream>> streams_;
};

void ignore(const std::exception &error) {
    ADD_FAILURE() << error.what();
}

TEST(OsListener, ReportsThatNoDescriptorIsFreeAndAcceptsAfterRetry) {
    OsNetwork network(ignore);
    Accepted accepted;
    std::unique_ptr<Listener> listener;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    network.run([&] {
        listener = network.listen({"127.0.0.1", 0}, accepted.function());
        to.sin_port = htons(listener->address().port);
    });
    const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto starved = [&] {
        bool is = false;
        network.run([&] { is = listener->starved(); });
        return is;
    };
    {
        const NoDescriptors none;
        ASSERT_EQ(connect(socket.get(), reinterpret_cast<sockaddr *>(&to), sizeof to), 0);
        while (!starved()) sched_yield();
        EXPECT_EQ(accepted.count(), 0u);
        // It is starved again.
        network.run([&] { listener->retry(); });
        while (!starved()) sched_yield();
    }
    network.run([&] { listener->retry(); });
    accepted.wait_for(1);
    EXPECT_FALSE(starved());
    network.run([&] {
        accepted.release();
        listener.reset();
    });
}

// A listener within the machine has a descriptor in reserve, and goes on by itself.
TEST(OsListener, AcceptsLocalConnectionsOneAfterAnother) {
    OsNetwork network(ignore);
    Accepted accepted;
    std::unique_ptr<Listener> listener;
    const std::string name = "vescomm os_listener_test " + std::to_string(getpid());
    network.run([&] { listener = network.listen_local(name, accepted.function()); });
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const Descriptor first(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Descriptor second(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
        const NoDescriptors none;
        for (const Descriptor *socket : {&first, &second})
            ASSERT_EQ(connect(socket->get(), reinterpret_cast<sockaddr *>(&to), size), 0);
        accepted.wait_for(1);
        // The second one comes when the first one has ended.
        network.run([&] { accepted.release(); });
        accepted.wait_for(1);
        network.run([&] { accepted.release(); });
    }
    network.run([&] { listener.reset(); });
}

// Sockets of this machine that have sent the first packet of a connection to a port, and no answer
// has come.
int unanswered(std::uint16_t port) {
    char wanted[32];
    std::snprintf(wanted, sizeof wanted, "0100007F:%04X 02", port);
    std::ifstream sockets("/proc/net/tcp");
    int count = 0;
    for (std::string line; std::getline(sockets, line);)
        count += line.find(wanted) != std::string::npos;
    return count;
}

// While the queue of the listener is full, the kernel drops the first packet of each connection.
TEST(OsNetwork, ConnectsSeveralSocketsToAFullListener) {
    OsNetwork network(ignore);
    const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr *>(&at), size), 0);
    ASSERT_EQ(listen(listener.get(), 0), 0);
    ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr *>(&at), &size), 0);
    const std::uint16_t port = ntohs(at.sin_port);
    std::vector<Descriptor> queued;
    while (unanswered(port) == 0) {
        queued.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        connect(queued.back().get(), reinterpret_cast<sockaddr *>(&at), sizeof at);
    }
    std::atomic<int> connections = 0;
    std::unique_ptr<Attempt> attempt;
    network.run([&] {
        attempt = network.connect({"127.0.0.1", port},
                                  [&](std::unique_ptr<Stream> stream, const std::string &why) {
                                      EXPECT_NE(stream, nullptr) << why;
                                      ++connections;
                                  });
    });
    const auto limit = Clock::now() + std::chrono::seconds(30);
    while (unanswered(port) < 3 && Clock::now() < limit) sched_yield();
    EXPECT_GE(unanswered(port), 3) << "one is of the test, the others are of one attempt";
    while (connections == 0) {
        pollfd entry{listener.get(), POLLIN, 0};
        if (poll(&entry, 1, 10) == 1) Descriptor(accept(listener.get(), nullptr, nullptr));
    }
    network.run([&] { attempt.reset(); });
    EXPECT_EQ(connections, 1);
}

}  // namespace
}  // namespace vescomm::internal
