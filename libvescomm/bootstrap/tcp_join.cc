// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_join.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <list>
#include <optional>
#include <system_error>

#include "base/system.h"

namespace vescomm {

namespace {

// The first retries come quickly, since ranks start almost together; later ones spare the network.
constexpr double first_pause_seconds = 0.01;
constexpr double longest_pause_seconds = 0.25;
// Head start of an address over the next one in the list.
constexpr double head_start_seconds = 0.1;
// A connection may be taken by the operating system long before rank 0 looks at it (its program may
// still be loading), so one that stands is given time; an unanswered attempt to connect is not.
constexpr double connect_seconds = 5.0;
constexpr double answer_seconds = 60.0;

std::string reason_of(int code) {
    return std::generic_category().message(code);
}

// One address, and the attempt on it that is under way, if any.
class Attempt {
public:
    Attempt(TcpAddress name, SocketAddress where, Deadline not_before)
        : name_(std::move(name)), where_(where), next_(not_before) {}

    bool under_way() const { return socket_.open(); }
    bool due() const { return !under_way() && next_.expired(); }
    bool wrong_secret() const { return wrong_secret_; }
    bool proved() const { return proved_; }
    int socket() const { return socket_.get(); }
    short events() const { return connecting_ ? POLLOUT : POLLIN; }
    double seconds_until_due() const {
        return under_way() ? give_up_->seconds_left() : next_.seconds_left();
    }
    bool fresh() const { return !under_way() && trouble_.empty(); }
    bool is_at(const TcpAddress &name) const { return name_ == name; }
    // Why there is no connection yet: what happened last, unless the present attempt drags on.
    std::string trouble() const {
        const bool drags_on = under_way() && Clock::now() - begun_ > std::chrono::seconds(1);
        return trouble_.empty() || drags_on ? name() + ": no answer" : trouble_;
    }
    std::string name() const { return to_text(name_); }

    void begin(std::string_view secret, Claim claim) {
        begun_ = Clock::now();
        joiner_.emplace(secret, claim);
        socket_ = Descriptor(
            ::socket(where_.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
        if (!socket_.open()) return give_up(reason_of(errno));
        // Whatever port this end gets must not keep rank 0 from listening on it.
        const int yes = 1;
        setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        connecting_ = true;
        give_up_ = Deadline::after(connect_seconds);
        if (connect(socket_.get(), where_.get(), where_.length) == 0) return greet();
        if (errno != EINPROGRESS && errno != EINTR) give_up(reason_of(errno));
    }

    void give_up(const std::string &why) {
        trouble_ = fmt::format("{}: {}", name(), why);
        socket_ = Descriptor();
        proved_ = false;
        next_ = Deadline::after(pause_);
        pause_ = std::min(pause_ * 1.5, longest_pause_seconds);
    }

    // Another attempt has found rank 0.
    void stand_back() {
        if (under_way()) give_up("another address led to rank 0");
    }

    void check_patience() {
        if (under_way() && give_up_->expired())
            give_up(connecting_ ? "no answer" : "connected, but no rank 0 answers there");
    }

    // The socket is ready. True once rank 0 has welcomed us.
    bool advance() {
        if (connecting_) {
            int code = 0;
            socklen_t size = sizeof code;
            getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &code, &size);
            if (code != 0) give_up(reason_of(code));
            else greet();
            return false;
        }
        char buffer[512];
        const ssize_t got = recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
        if (got < 0) return give_up(reason_of(errno)), false;
        if (got == 0) return give_up("it closed the connection"), false;
        std::string_view bytes(buffer, static_cast<std::size_t>(got));
        while (under_way()) {
            switch (joiner_->read(bytes)) {
                case Joiner::State::waiting:
                    return false;
                case Joiner::State::proved:
                    proved_ = true;
                    say(joiner_->join());
                    break;
                case Joiner::State::welcomed:
                    rest_ = bytes;
                    return true;
                case Joiner::State::refused:
                    throw joiner_->refusal();
                case Joiner::State::wrong_secret:
                    wrong_secret_ = true;
                    give_up("it has another secret");
                    break;
                case Joiner::State::other_version:
                    throw Error(VESCOMM_ERROR_MISMATCH,
                                fmt::format("rank 0 at {} speaks version {} of the control "
                                            "protocol, this rank version {}; use the same vescomm "
                                            "on all ranks",
                                            name(), joiner_->version(), frame_version));
                case Joiner::State::stranger:
                    give_up("what answers there is no rank 0 of vescomm");
                    break;
            }
        }
        return false;
    }

    Joined take() { return {std::move(socket_), joiner_->take_session(), std::move(rest_)}; }

private:
    void greet() {
        connecting_ = false;
        // A machine may connect to itself when it picks the very port that it looks for.
        if (connected_to_itself()) return give_up(reason_of(ECONNREFUSED));
        tune_connection(socket_.get(), answer_seconds);
        give_up_ = Deadline::after(answer_seconds);
        say(joiner_->hello());
    }

    // Some hundred bytes into an empty socket never wait.
    void say(const std::string &bytes) {
        const ssize_t sent =
            send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent != static_cast<ssize_t>(bytes.size()))
            give_up(sent < 0 ? reason_of(errno) : "the connection takes no bytes");
    }

    bool connected_to_itself() const {
        SocketAddress here, there;
        here.length = there.length = sizeof(sockaddr_storage);
        return getsockname(socket_.get(), reinterpret_cast<sockaddr *>(&here.storage),
                           &here.length) == 0 &&
               getpeername(socket_.get(), reinterpret_cast<sockaddr *>(&there.storage),
                           &there.length) == 0 &&
               here.length == there.length &&
               std::memcmp(&here.storage, &there.storage, here.length) == 0;
    }

    TcpAddress name_;
    SocketAddress where_;
    Descriptor socket_;
    std::optional<Joiner> joiner_;
    Clock::time_point begun_;
    std::optional<Deadline> give_up_;
    Deadline next_;
    double pause_ = first_pause_seconds;
    bool connecting_ = false;
    bool proved_ = false;
    bool wrong_secret_ = false;
    std::string trouble_;
    std::string rest_;
};

// All addresses, tried side by side: some of them may belong to other networks and lead nowhere.
class Search {
public:
    Search(const std::vector<TcpAddress> &addresses, std::string_view secret, Claim claim,
           Deadline deadline)
        : unresolved_(addresses), secret_(secret), claim_(claim), deadline_(deadline) {}

    Joined run() {
        for (;;) {
            resolve_names();
            begin_what_is_due();
            if (Attempt *welcomed = wait()) return welcomed->take();
            for (Attempt &attempt : attempts_) attempt.check_patience();
            throw_if_hopeless();
            if (deadline_.expired()) throw too_late();
        }
    }

private:
    void resolve_names() {
        if (unresolved_.empty() || !resolve_next_.expired()) return;
        std::erase_if(unresolved_, [&](const TcpAddress &name) {
            for (const SocketAddress &where : resolve(name, deadline_, trouble_)) {
                const double head_start =
                    head_start_seconds * static_cast<double>(attempts_.size());
                attempts_.emplace_back(name, where, Deadline::after(head_start));
            }
            return !attempts_.empty() && attempts_.back().is_at(name);
        });
        resolve_next_ = Deadline::after(longest_pause_seconds);
    }

    Attempt *proved() {
        const auto found = std::find_if(attempts_.begin(), attempts_.end(),
                                        [](const Attempt &attempt) { return attempt.proved(); });
        return found == attempts_.end() ? nullptr : &*found;
    }

    // Two connections of this rank would look like two processes: once one is proved, others wait.
    void begin_what_is_due() {
        if (proved() != nullptr) return;
        const bool quiet = std::none_of(attempts_.begin(), attempts_.end(),
                                        [](const Attempt &attempt) { return attempt.under_way(); });
        for (Attempt &attempt : attempts_) {
            if (!attempt.due() && !(quiet && attempt.fresh())) continue;
            attempt.begin(secret_, claim_);
            if (quiet && attempt.under_way()) break;
        }
    }

    Attempt *wait() {
        std::vector<pollfd> entries;
        std::vector<Attempt *> attempts;
        double seconds = std::min(deadline_.seconds_left(), longest_pause_seconds);
        Attempt *const only = proved();
        for (Attempt &attempt : attempts_) {
            if (only != nullptr && &attempt != only) {
                attempt.stand_back();
                continue;
            }
            seconds = std::min(seconds, attempt.seconds_until_due());
            if (!attempt.under_way()) continue;
            entries.push_back({attempt.socket(), attempt.events(), 0});
            attempts.push_back(&attempt);
        }
        // Rounded up: waking just before the moment would mean waking twice.
        poll(entries.data(), entries.size(), static_cast<int>(std::ceil(seconds * 1e3)));
        for (std::size_t i = 0; i < entries.size(); ++i) {
            if (entries[i].revents == 0) continue;
            if (attempts[i]->advance()) return attempts[i];
            if (attempts[i]->proved()) break;
        }
        return nullptr;
    }

    // With other addresses still open, one wrong secret may only mean another machine.
    void throw_if_hopeless() const {
        const Attempt *wrong = nullptr;
        for (const Attempt &attempt : attempts_) {
            if (attempt.under_way() || attempt.fresh()) return;
            if (attempt.wrong_secret()) wrong = &attempt;
        }
        if (wrong == nullptr || !unresolved_.empty()) return;
        throw Error(VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank 0 at {} does not know this secret; give every rank the same "
                                "one, and see whether another job uses this address",
                                wrong->name()));
    }

    Error too_late() const {
        std::string tried;
        for (const Attempt &attempt : attempts_) {
            if (!tried.empty()) tried += ", ";
            tried += attempt.trouble();
        }
        if (!unresolved_.empty()) tried += (tried.empty() ? "" : ", ") + trouble_;
        return Error(
            VESCOMM_ERROR_TIMEOUT,
            fmt::format("rank {} of {} could not reach rank 0 before the timeout ({}); see "
                        "whether rank 0 is running and can be reached at this address",
                        claim_.rank, claim_.ranks, tried));
    }

    std::vector<TcpAddress> unresolved_;
    std::string_view secret_;
    Claim claim_;
    Deadline deadline_;
    Deadline resolve_next_ = Deadline::after(0);
    std::list<Attempt> attempts_;
    std::string trouble_;
};

}  // namespace

Joined join_rank_0(const std::vector<TcpAddress> &addresses, std::string_view secret, Claim claim,
                   Deadline deadline) {
    return Search(addresses, secret, claim, deadline).run();
}

}  // namespace vescomm
