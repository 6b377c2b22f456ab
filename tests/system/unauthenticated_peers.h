// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Unauthenticated peers for tests: processes without the secret that connect to every listening
// socket of a job, and send garbage, partial handshakes or nothing.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/un.h>

#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "system/forked_ranks.h"

namespace unauthenticated_peers {

using forked_ranks::expect;

// The sockets on which the processes of a job listen. Shared memory: unauthenticated peers of
// another user cannot read them from the /proc entries of the job.
struct Targets {
    struct Local {
        char name[108];
        std::size_t size;
        int type;  // SOCK_STREAM or SOCK_DGRAM
    };
    static constexpr std::size_t max_ports = 64, max_locals = 256;
    std::atomic<int> port_count;
    std::atomic<int> ports[max_ports];
    std::atomic<int> local_count;
    Local locals[max_locals];  // not locked: a reader may see a wrong name
    std::atomic<std::int64_t> connected;
    std::atomic<std::int64_t> refused;
    std::atomic<std::int64_t> port_visits;  // attempts to connect to a listed port
    std::atomic<std::int64_t> local_visits;
    std::atomic<std::int64_t> datagrams;
    std::atomic<int> peak_ports, peak_locals;  // largest port_count and local_count
    std::atomic<int> elsewhere;  // 1 if a port is open on an interface other than loopback
    std::atomic<bool> over;
    std::atomic<int> only_port;  // if not 0, no other port is listed
    std::atomic<pid_t> processes[64];  // of the job
    char first_message[256];  // that a rank sends; contains no proof of the secret
    std::size_t first_message_size;
};

inline std::set<std::string> sockets_of(pid_t process) {
    std::set<std::string> inodes;
    const std::string folder = "/proc/" + std::to_string(process) + "/fd";
    DIR *entries = opendir(folder.c_str());
    if (entries == nullptr) return inodes;
    while (const dirent *entry = readdir(entries)) {
        char link[64] = {};
        if (readlink((folder + "/" + entry->d_name).c_str(), link, sizeof link - 1) > 8 &&
            std::strncmp(link, "socket:[", 8) == 0)
            inodes.insert(std::string(link + 8, std::strcspn(link + 8, "]")));
    }
    closedir(entries);
    return inodes;
}

// Lists the listening sockets of the job's processes in `targets`.
inline void find_targets(Targets &targets) {
    std::set<std::string> inodes;
    for (const auto &process : targets.processes)
        if (process > 0) inodes.merge(sockets_of(process));
    std::string line, word;
    int ports = 0, locals = 0;
    std::ifstream tcp("/proc/net/tcp");
    for (std::getline(tcp, line); std::getline(tcp, line);) {
        std::istringstream words(line);
        std::array<std::string, 10> columns;
        for (std::string &column : columns) words >> column;
        constexpr const char *listening = "0A";
        if (columns[3] != listening || !inodes.contains(columns[9])) continue;
        if (columns[1].compare(0, 8, "0100007F") != 0) targets.elsewhere = 1;
        const int port = std::stoi(columns[1].substr(9), nullptr, 16);
        if (targets.only_port != 0 && port != targets.only_port) continue;
        if (ports < static_cast<int>(Targets::max_ports)) targets.ports[ports++] = port;
    }
    std::ifstream local("/proc/net/unix");
    for (std::getline(local, line); std::getline(local, line);) {
        std::istringstream words(line);
        std::array<std::string, 8> columns;
        for (std::string &column : columns) words >> column;
        if (columns[7].size() < 2 || columns[7][0] != '@' || !inodes.contains(columns[6])) continue;
        if (locals == static_cast<int>(Targets::max_locals)) break;
        Targets::Local &found = targets.locals[locals++];
        std::memset(found.name, 0, sizeof found.name);
        found.size = std::min(columns[7].size(), sizeof found.name);
        std::memcpy(found.name + 1, columns[7].data() + 1, found.size - 1);
        found.type = columns[4] == "0002" ? SOCK_DGRAM : SOCK_STREAM;
    }
    targets.port_count = ports;
    targets.local_count = locals;
    targets.peak_ports = std::max<int>(targets.peak_ports, ports);
    targets.peak_locals = std::max<int>(targets.peak_locals, locals);
}

// Connects to random targets repeatedly. Keeps up to max_kept connections open.
class UnauthenticatedPeer {
public:
    explicit UnauthenticatedPeer(Targets &targets, unsigned seed)
        : targets_(targets), random_(seed) {}
    ~UnauthenticatedPeer() {
        while (!kept_.empty()) close_oldest();
    }

    void visit_port() {
        const int count = targets_.port_count;
        if (count == 0) return;
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(static_cast<std::uint16_t>(
            targets_.ports[random_() % static_cast<unsigned>(count)].load()));
        const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (socket < 0) return close_oldest();
        // close() resets the connection, so that none stays in TIME_WAIT and keeps its port.
        const linger at_once{1, 0};
        setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        sockaddr_in from{};
        from.sin_family = AF_INET;
        from.sin_addr.s_addr = htonl(0x7f000000u + 1 + random_() % 250);
        bind(socket, reinterpret_cast<sockaddr *>(&from), sizeof from);
        ++targets_.port_visits;
        talk(socket, connect(socket, reinterpret_cast<sockaddr *>(&to), sizeof to));
    }

    void visit_local() {
        const int count = targets_.local_count;
        if (count == 0) return;
        const Targets::Local &target = targets_.locals[random_() % static_cast<unsigned>(count)];
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        std::memcpy(to.sun_path, target.name, sizeof to.sun_path);
        const int socket = ::socket(AF_UNIX, target.type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (socket < 0) return close_oldest();
        ++targets_.local_visits;
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + target.size);
        if (target.type == SOCK_STREAM)
            return talk(socket, connect(socket, reinterpret_cast<sockaddr *>(&to), size));
        const std::string bytes = some_bytes();
        for (int i = 0; i < 10; ++i)
            if (sendto(socket, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&to),
                       size) >= 0)
                ++targets_.datagrams;
        close(socket);
    }

private:
    static constexpr std::size_t max_kept = 400;

    // Nothing, a valid first message, one with garbage, or an HTTP request with garbage.
    std::string some_bytes() {
        const auto kind = random_() % 4;
        std::string bytes(targets_.first_message, kind == 0 ? 0 : targets_.first_message_size);
        if (kind == 2) bytes = "GET / HTTP/1.1";
        if (kind > 1)
            for (auto size = random_() % 200; size > 0; --size)
                bytes += static_cast<char>(random_());
        return bytes;
    }

    void talk(int socket, int connected) {
        if (connected != 0 && errno != EINPROGRESS) {
            ++targets_.refused;
            close(socket);
            return;
        }
        ++targets_.connected;
        const std::string bytes = some_bytes();
        [[maybe_unused]] const ssize_t sent =
            send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        kept_.push_back(socket);
        if (random_() % 4 == 0 || kept_.size() > max_kept) close_oldest();
    }

    void close_oldest() {
        if (kept_.empty()) return;
        close(kept_.front());
        kept_.pop_front();
    }

    Targets &targets_;
    std::mt19937 random_;
    std::deque<int> kept_;
};

// A forked process that runs `body` until it is killed.
class Process {
public:
    explicit Process(const std::function<void()> &body) : process_(fork()) {
        if (process_ != 0) return;
        body();
        _exit(0);
    }
    ~Process() {
        kill(process_, SIGKILL);
        waitpid(process_, nullptr, 0);
    }
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

private:
    pid_t process_;
};

// Records the first message of a rank, for replay.
inline void record_first_message(Targets &targets) {
    const forked_ranks::Job job{2, 1};
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(job.port);
    bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address);
    listen(listener, 1);
    {
        const Process rank([&] {
            vescomm_comm_t *comm = nullptr;
            job.create(1, nullptr, &comm);
        });
        const int socket = accept(listener, nullptr, nullptr);
        const ssize_t got = recv(socket, targets.first_message, sizeof targets.first_message, 0);
        targets.first_message_size = got > 0 ? static_cast<std::size_t>(got) : 0;
        close(socket);
    }
    close(listener);
    EXPECT_GT(targets.first_message_size, 0u);
}

// Starts a process that updates `targets` repeatedly.
inline std::unique_ptr<Process> make_scout(Targets &targets) {
    return std::make_unique<Process>([&] {
        // 5 ms between updates: during a flood the kernel's list of sockets is long.
        for (; !targets.over; poll(nullptr, 0, 5)) find_targets(targets);
    });
}

}  // namespace unauthenticated_peers
