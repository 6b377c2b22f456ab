// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a session for tests, as threads and as forked processes, and the socket of an
// unauthenticated peer.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bootstrap/session.h"

namespace vescomm::internal::testing_support {

// For machines that hang; every test takes far less.
inline Deadline generous() {
    return Deadline::after(60);
}

// A listening socket of rank 0, and the options on which all ranks agree.
class Place {
public:
    explicit Place(int ranks, const char *host = "127.0.0.1")
        : ranks_(ranks), listeners_(listen_on({host, 0})) {
        address_ = {host, port_of(listeners_[0].get())};
    }

    SessionOptions options(int rank) const {
        SessionOptions options;
        options.rank = rank;
        options.ranks = ranks_;
        options.addresses = {address_};
        options.secret = "the secret of the test";
        if (rank == 0) options.listen_descriptor = listeners_[0].get();
        // Tests of late ranks raise this.
        options.linger_seconds = 0;
        return options;
    }

    int ranks() const { return ranks_; }
    const TcpAddress &address() const { return address_; }

private:
    int ranks_;
    std::vector<Descriptor> listeners_;
    TcpAddress address_;
};

// Meets the other ranks and opens the group of all ranks.
inline std::unique_ptr<Control> take_part(const SessionOptions &options, Deadline deadline) {
    if (options.ranks == 1 && options.rank == 0) return make_lone_control();
    Session::Creation creation({});
    const std::shared_ptr<Session> session = Session::meet(options, deadline, creation);
    std::vector<int> all_ranks(static_cast<std::size_t>(options.ranks));
    std::iota(all_ranks.begin(), all_ranks.end(), 0);
    return session->open(creation.id(), all_ranks, "communicator creation", deadline, &creation);
}

// The error that one rank threw or that its listener received, if any.
using Outcome = std::optional<std::pair<vescomm_status_t, std::string>>;

inline Outcome outcome_of(const std::function<void()> &body) {
    try {
        body();
        return std::nullopt;
    } catch (const Error &error) {
        return std::pair(error.status, std::string(error.what()));
    }
}

using Body = std::function<void(Control &)>;
using Tweak = std::function<void(SessionOptions &)>;

// Runs every rank as a thread: connects, runs the body, ends.
inline std::vector<Outcome> run_threads(
    const Place &place, const Body &body, const Tweak &tweak = [](SessionOptions &) {}) {
    std::vector<Outcome> outcomes(static_cast<std::size_t>(place.ranks()));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < place.ranks(); ++rank)
        threads.emplace_back([&, rank] {
            outcomes[rank] = outcome_of([&] {
                SessionOptions options = place.options(rank);
                tweak(options);
                body(*take_part(options, generous()));
            });
        });
    for (std::thread &thread : threads) thread.join();
    return outcomes;
}

// A failure listener for which a test can wait.
class FailureObserver {
public:
    Control::Listener listener() {
        return [state = state_](vescomm_status_t status, const std::string &why) {
            std::lock_guard lock(state->mutex);
            ++state->calls;
            state->observed = std::pair(status, why);
            state->changed.notify_all();
        };
    }

    Outcome wait() {
        std::unique_lock lock(state_->mutex);
        state_->changed.wait_until(lock, generous().moment(), [&] { return state_->calls > 0; });
        return state_->observed;
    }
    int calls() const {
        std::lock_guard lock(state_->mutex);
        return state_->calls;
    }

private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        int calls = 0;
        Outcome observed;
    };
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

inline void expect_outcome(const Outcome &outcome, vescomm_status_t status,
                           const std::vector<std::string> &parts) {
    ASSERT_TRUE(outcome.has_value()) << "nothing went wrong";
    EXPECT_EQ(outcome->first, status) << outcome->second;
    for (const std::string &part : parts)
        EXPECT_NE(outcome->second.find(part), std::string::npos)
            << "\"" << part << "\" is not in: " << outcome->second;
}

// A rank in its own process, which sends lines to the test. The destructor kills and reaps it.
class RankProcess {
public:
    using Say = std::function<void(const std::string &)>;

    explicit RankProcess(const std::function<void(const Say &)> &body) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) != 0) abort();
        process_ = fork();
        if (process_ == 0) {
            close(ends[0]);
            run(body, ends[1]);
        }
        close(ends[1]);
        lines_ = Descriptor(ends[0]);
    }
    RankProcess(RankProcess &&other) noexcept
        : process_(std::exchange(other.process_, -1)),
          lines_(std::move(other.lines_)),
          buffer_(std::move(other.buffer_)) {}
    ~RankProcess() {
        if (process_ < 0) return;
        signal(SIGKILL);
        reap();
    }

    void signal(int number) const { kill(process_, number); }
    void reap() {
        if (process_ > 0) waitpid(process_, nullptr, 0);
        process_ = -1;
    }

    // Returns the next line; "silence" after the deadline, "end" when the process has ended.
    std::string line() {
        const Deadline deadline = generous();
        for (;;) {
            if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
                const std::string line = buffer_.substr(0, end);
                buffer_.erase(0, end + 1);
                return line;
            }
            pollfd entry{lines_.get(), POLLIN, 0};
            poll(&entry, 1, static_cast<int>(deadline.seconds_left() * 1000) + 1);
            if (deadline.expired()) return "silence";
            char bytes[4096];
            const ssize_t got = read(lines_.get(), bytes, sizeof bytes);
            if (got == 0) return "end";
            if (got > 0) buffer_.append(bytes, static_cast<std::size_t>(got));
        }
    }

private:
    // Runs in the child, which must never return into the test.
    [[noreturn]] static void run(const std::function<void(const Say &)> &body, int pipe) noexcept {
        body([&](const std::string &line) {
            const std::string text = line + "\n";
            if (write(pipe, text.data(), text.size()) < 0) _exit(3);
        });
        _exit(0);
    }

    pid_t process_ = -1;
    Descriptor lines_;
    std::string buffer_;
};

inline Descriptor connect_to(const TcpAddress &address) {
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(address.port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket.get(), reinterpret_cast<sockaddr *>(&where), sizeof where) != 0)
        return Descriptor();
    return socket;
}

// An unauthenticated peer that connects to rank 0.
class UnauthenticatedPeer {
public:
    explicit UnauthenticatedPeer(const TcpAddress &address) : socket_(connect_to(address)) {}

    bool connected() const { return socket_.open(); }
    void say(std::string_view bytes) {
        std::ignore = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    void stop_sending() { shutdown(socket_.get(), SHUT_WR); }
    // Receives at most `max` bytes, until the end of the connection.
    std::string receive(std::size_t max) {
        std::string bytes(max, '\0');
        std::size_t count = 0;
        while (count < max && readable(generous())) {
            const ssize_t got = recv(socket_.get(), bytes.data() + count, max - count, 0);
            if (got <= 0) break;
            count += static_cast<std::size_t>(got);
        }
        bytes.resize(count);
        return bytes;
    }
    // Returns true once rank 0 has closed the connection.
    bool rejected(Deadline deadline = generous()) {
        char bytes[256];
        while (readable(deadline))
            if (recv(socket_.get(), bytes, sizeof bytes, 0) <= 0) return true;
        return false;
    }

private:
    bool readable(Deadline deadline) const {
        pollfd entry{socket_.get(), POLLIN, 0};
        return poll(&entry, 1, static_cast<int>(deadline.seconds_left() * 1000)) > 0;
    }

    Descriptor socket_;
};

}  // namespace vescomm::internal::testing_support
