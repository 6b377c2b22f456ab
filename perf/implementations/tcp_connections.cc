// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation and per byte, except the constructor.
#include "perf/implementations/tcp_connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "perf/worker/cores.h"

namespace vescomm::perf {
namespace {

// Passes over all connections without progress before a rank with its own core sleeps.
constexpr int max_looks = 10'000;

// Bytes of one call. Linux sends them as one segment, and they stay in cache between send and
// receive. 64 MiB between two hosts take 9.5 ms; with 65,536 bytes, which are two segments, 24 ms.
constexpr std::size_t max_at_once = 65'000;

[[noreturn]] void fail(const std::string &what) {
    throw std::runtime_error(what + ": " + std::strerror(errno));
}

void check(bool good, const char *what) {
    if (!good) fail(what);
}

sockaddr_in address_of(const std::string &host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    check(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, "inet_pton");
    return address;
}

std::string place_of(const Worker &worker, int rank) {
    return worker.folder + "/address-" + std::to_string(rank);
}

// Publishes the address of this rank's listener in the folder. The file appears atomically.
void announce(const Worker &worker, std::uint16_t port) {
    const std::string place = place_of(worker, worker.rank);
    std::ofstream(place + "~") << worker.address << ' ' << port << '\n';
    std::filesystem::rename(place + "~", place);
}

int connect_to_rank(const Worker &worker, int rank) {
    // This waits without a limit; the coordinator has a timeout.
    while (!std::filesystem::exists(place_of(worker, rank)))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string host;
    std::uint16_t port = 0;
    std::ifstream(place_of(worker, rank)) >> host >> port;
    const sockaddr_in address = address_of(host, port);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(connect(socket, reinterpret_cast<const sockaddr *>(&address), sizeof address) == 0,
          "connect");
    check(write(socket, &worker.rank, sizeof worker.rank) == sizeof worker.rank, "write");
    return socket;
}

}  // namespace

TcpConnections::TcpConnections(const Worker &worker)
    : rank_(worker.rank), crowded_(more_ranks_than_cores(worker.ranks)) {
    sockets_.assign(static_cast<std::size_t>(worker.ranks), -1);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here = address_of(worker.address, 0);
    socklen_t size = sizeof here;
    auto *plain = reinterpret_cast<sockaddr *>(&here);
    check(bind(listener, plain, size) == 0 && listen(listener, worker.ranks) == 0, "listen");
    check(getsockname(listener, plain, &size) == 0, "getsockname");
    announce(worker, ntohs(here.sin_port));
    for (int rank = 0; rank < rank_; ++rank) sockets_[rank] = connect_to_rank(worker, rank);
    for (int rank = rank_ + 1; rank < worker.ranks; ++rank) {
        const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        int peer = -1;
        check(read(socket, &peer, sizeof peer) == sizeof peer, "read");
        sockets_.at(static_cast<std::size_t>(peer)) = socket;
    }
    close(listener);
    const int yes = 1;
    for (const int socket : sockets_)
        if (socket >= 0) setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

TcpConnections::~TcpConnections() {
    for (const int socket : sockets_)
        if (socket >= 0) close(socket);
}

// Returns true if any bytes were sent or received.
bool TcpConnections::pass(int peer, Passing &passing) {
    bool moved = false;
    const auto count = [&](ssize_t bytes) -> std::size_t {
        if (bytes < 0 && errno != EAGAIN && errno != EINTR) fail("a TCP connection");
        moved |= bytes > 0;
        return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    };
    if (passing.to_send > 0) {
        const std::size_t sent =
            count(send(sockets_[peer], passing.from, std::min(passing.to_send, max_at_once),
                       MSG_DONTWAIT | MSG_NOSIGNAL));
        passing.from += sent;
        passing.to_send -= sent;
    }
    if (passing.to_receive > 0) {
        const ssize_t bytes = recv(sockets_[peer], passing.to,
                                   std::min(passing.to_receive, max_at_once), MSG_DONTWAIT);
        if (bytes == 0) throw std::runtime_error("rank " + std::to_string(peer) + " is gone");
        const std::size_t received = count(bytes);
        passing.to += received;
        passing.to_receive -= received;
    }
    return moved;
}

void TcpConnections::wait(const std::vector<Passing> &passing) const {
    std::vector<pollfd> entries;
    for (std::size_t peer = 0; peer < passing.size(); ++peer) {
        const int events =
            (passing[peer].to_send > 0 ? POLLOUT : 0) | (passing[peer].to_receive > 0 ? POLLIN : 0);
        if (events != 0) entries.push_back({sockets_[peer], static_cast<short>(events), 0});
    }
    poll(entries.data(), entries.size(), -1);
}

void TcpConnections::exchange(std::vector<Passing> passing,
                              const std::function<void(std::size_t)> &arrived) {
    passing[rank_] = {};
    std::vector<std::size_t> whole;
    for (const Passing &each : passing) whole.push_back(each.to_receive);
    for (int looks = 0;;) {
        bool moved = false, done = true;
        std::size_t min = std::numeric_limits<std::size_t>::max();
        for (int peer = 0; peer < static_cast<int>(passing.size()); ++peer) {
            if (peer == rank_) continue;
            moved |= pass(peer, passing[peer]);
            done &= passing[peer].to_send == 0 && passing[peer].to_receive == 0;
            min = std::min(min, whole[peer] - passing[peer].to_receive);
        }
        arrived(min);
        if (done) return;
        looks = moved ? 0 : looks + 1;
        if (looks > (crowded_ ? 0 : max_looks)) wait(passing);
    }
}

}  // namespace vescomm::perf
