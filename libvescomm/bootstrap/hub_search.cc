// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

namespace vescomm::internal {

namespace {

using std::chrono::milliseconds;

// The first retries follow quickly, since ranks start almost together; later ones spare the
// network.
constexpr auto first_pause = milliseconds(10);
constexpr auto max_pause = milliseconds(250);
// Head start of an address over the next one in the list.
constexpr auto head_start = milliseconds(100);
// An unanswered attempt to connect is abandoned soon. An established connection gets more time; see
// Limits::answer.
constexpr auto max_connect_time = std::chrono::seconds(5);
// A longer attempt is reported as unanswered, whatever happened before.
constexpr auto slow_attempt = std::chrono::seconds(1);

// True if the reason lies in this process or its machine, and says nothing about the peer.
bool is_local(const std::string &why) {
    const auto errors = {EMFILE, ENFILE, ENOBUFS, ENOMEM, EADDRNOTAVAIL};
    return std::ranges::any_of(
        errors, [&](int error) { return why == std::generic_category().message(error); });
}

}  // namespace

// One address.
struct HubSearch::Try {
    // The attempt under way.
    struct Connection {
        std::unique_ptr<Attempt> attempt = {};  // to connect
        std::unique_ptr<Stream> stream = {};  // once connected
        Clock::time_point began{};
        Clock::time_point deadline{};
        bool resumed = false;  // it began with a cookie
        bool authenticated = false;  // the listener is: on this connection, or on the one before
    };

    Try(TcpAddress address, std::string_view secret, const Claim &claim, Clock::time_point next)
        : address(std::move(address)), handshake(secret, claim), next(next) {}

    bool under_way() const { return current.attempt != nullptr || current.stream != nullptr; }

    TcpAddress address;
    ClientHandshake handshake;
    Connection current;
    Clock::time_point next;
    Clock::duration pause = first_pause;
    bool tried = false;
    Clock::time_point first{};  // begin of the first attempt
    // Results of the last attempt.
    std::optional<Error> other_job = {};  // the process there is of another job
    bool gone = false;  // no process of the job listens there, or none answers
    std::string trouble;
};

HubSearch::HubSearch(Network &network, std::vector<TcpAddress> addresses, std::string_view secret,
                     Claim claim, Limits limits, Events events)
    : network_(network),
      secret_(secret),
      claim_(std::move(claim)),
      limits_(limits),
      events_(std::move(events)) {
    Clock::time_point next = network_.now();
    for (TcpAddress &address : addresses) {
        tries_.emplace_back(std::move(address), secret_, claim_, next);
        next += head_start;
    }
}

HubSearch::~HubSearch() {
    *alive_ = false;
}

bool HubSearch::any_authenticated() const {
    return std::any_of(tries_.begin(), tries_.end(),
                       [](const Try &each) { return each.current.authenticated; });
}

Clock::time_point HubSearch::tick() {
    const Clock::time_point now = network_.now();
    const auto alive = alive_;
    Clock::time_point next = now + max_pause;
    for (Try &each : tries_) {
        if (each.under_way() && now >= each.current.deadline) {
            // A listener that accepts the cookie answers when all members are there, which may take
            // longer. The next attempt asks for a proof that it is alive.
            const bool resumed = each.current.resumed;
            if (resumed) each.handshake.restart();
            give_up(each,
                    each.current.attempt ? "no answer" : "connected, but nothing answers there",
                    !resumed);
        }
        if (!*alive) return next;
        // The hub would take two connections of this process for two processes.
        if (!each.under_way() && now >= each.next && !any_authenticated() &&
            !(limits_.once && each.gone))
            begin(each);
        next = std::min(next, each.under_way() ? each.current.deadline : std::max(each.next, now));
    }
    // An address that waits for another attempt to end is checked again a little later.
    return std::max(next, now + milliseconds(1));
}

void HubSearch::begin(Try &each) {
    each.current.began = network_.now();
    if (!std::exchange(each.tried, true)) each.first = each.current.began;
    each.other_job.reset();
    each.current.deadline = each.current.began + max_connect_time;
    each.current.attempt = network_.connect(
        each.address, [this, &each](std::unique_ptr<Stream> stream, const std::string &why) {
            connected(each, std::move(stream), why);
        });
}

void HubSearch::connected(Try &each, std::unique_ptr<Stream> stream, const std::string &why) {
    each.current.attempt.reset();
    if (stream == nullptr) return give_up(each, why, !is_local(why));
    each.current.stream = std::move(stream);
    each.current.stream->limit_silence(std::chrono::duration<double>(limits_.answer).count());
    each.current.deadline = network_.now() + limits_.answer;
    each.current.authenticated = each.current.resumed = each.handshake.resumes();
    if (each.current.resumed) listen(each);
    each.current.stream->start(
        {[this, &each](std::string_view bytes) { read(each, bytes); },
         [this, &each, alive = alive_](const std::string &how) {
             // A listener that closes the connection after its proof lacks
             // capacity: reconnect at once, with the cookie. On a second
             // connection the cookie may be out of date.
             const bool back = each.current.authenticated && !each.current.resumed;
             if (each.current.resumed) each.handshake.restart();
             // A flooded listener closes connections, but not for so long.
             const bool gone = limits_.once && network_.now() - each.first >= limits_.answer;
             give_up(each, how == "closed" ? "it closed the connection" : how, gone);
             if (*alive && back) each.next = network_.now();
         },
         nullptr});
    each.current.stream->write(each.handshake.hello());
}

// Only one attempt claims a rank: listening for another interface would close the port that it
// names.
void HubSearch::listen(Try &each) {
    each.handshake.set_listener(events_.listen ? events_.listen(*each.current.stream)
                                               : SurvivorListener());
}

void HubSearch::read(Try &each, std::string_view bytes) {
    const auto alive = alive_;
    while (*alive && each.current.stream != nullptr) {
        switch (each.handshake.read(bytes)) {
            case ClientHandshake::State::waiting:
                return;
            case ClientHandshake::State::authenticated:
                each.current.authenticated = true;
                // From here on only the end of the connection stops the attempt.
                each.current.deadline = Clock::time_point::max();
                listen(each);
                each.current.stream->write(each.handshake.join());
                for (Try &other : tries_)
                    if (&other != &each && other.under_way())
                        give_up(other, "another address was right", true);
                break;
            case ClientHandshake::State::welcomed: {
                std::string welcome(each.handshake.welcome());
                Found found{std::move(each.current.stream), each.handshake.take_keys(),
                            std::move(welcome), std::string(bytes)};
                const auto call = events_.found;
                return call(std::move(found));
            }
            case ClientHandshake::State::refused: {
                const auto call = events_.failed;
                const Error refusal = each.handshake.refusal();
                refused_ = true;
                return call(refusal);
            }
            case ClientHandshake::State::wrong_secret:
                each.other_job.emplace(
                    VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank 0 at {} does not know this secret; give every rank the same "
                                "one, and see whether another job uses this address",
                                to_text(each.address)));
                give_up(each, "it has another secret", true);
                break;
            case ClientHandshake::State::other_version:
                each.other_job.emplace(
                    VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank 0 at {} speaks version {} of the control protocol, this rank "
                                "version {}; use the same vescomm on all ranks",
                                to_text(each.address), each.handshake.version(), frame_version));
                each.handshake.restart();
                give_up(each, "it speaks another version of the control protocol", true);
                break;
            case ClientHandshake::State::not_vescomm:
                each.handshake.restart();
                give_up(each, "what answers there is no rank 0 of vescomm", true);
                break;
        }
    }
}

// The end of a connection does not imply that the process is gone (`gone` is false): a flooded
// listener closes some connections. The next attempt decides.
void HubSearch::give_up(Try &each, const std::string &why, bool gone) {
    each.trouble = fmt::format("{}: {}", to_text(each.address), why);
    each.gone = gone;
    each.current = {};
    each.next = network_.now() + each.pause;
    each.pause = std::min<Clock::duration>(each.pause * 3 / 2, max_pause);
    fail_if_hopeless();
}

// A process of another job at one address proves nothing about the others: an address may belong to
// another machine, or to another network of this one.
void HubSearch::fail_if_hopeless() {
    const auto hopeless = [this](const Try &each) {
        return !each.under_way() && (limits_.once ? each.gone : each.other_job.has_value());
    };
    if (!std::all_of(tries_.begin(), tries_.end(), hopeless)) return;
    const auto call = events_.failed;
    call(limits_.once ? Error(VESCOMM_ERROR_PEER_FAILED, trouble()) : *tries_.front().other_job);
}

std::string HubSearch::note() const {
    for (const Try &each : tries_)
        if (each.current.authenticated && !each.handshake.note().empty())
            return each.handshake.note();
    return {};
}

std::string HubSearch::trouble() const {
    std::string text;
    for (const Try &each : tries_) {
        const bool slow = each.under_way() && network_.now() - each.current.began > slow_attempt;
        const std::string mine =
            each.trouble.empty() || slow ? to_text(each.address) + ": no answer" : each.trouble;
        text += (text.empty() ? "" : ", ") + mine;
    }
    return text;
}

}  // namespace vescomm::internal
