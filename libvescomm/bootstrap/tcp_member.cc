// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "base/error.h"
#include "bootstrap/tcp_address.h"

namespace vescomm {

namespace {

// For rank 0 to say who is missing, after a deadline has passed.
constexpr double verdict_seconds = 2.0;
// For last words to reach the sockets when a communicator is destroyed.
constexpr double last_words_seconds = 0.25;

Clock::duration clock_duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

TcpMember::TcpMember(const TcpControlOptions &options)
    : rank_(options.rank),
      ranks_(options.ranks),
      secret_(options.secret),
      heartbeat_(clock_duration(options.heartbeat_seconds)),
      silence_(clock_duration(options.silence_seconds)),
      gone_(static_cast<std::size_t>(options.ranks)) {
    failure_.on_first([this] { on_failure(); });
}

FrameKey TcpMember::derive_key(std::string_view purpose) const {
    return derived_key(secret_, purpose);
}

std::string TcpMember::local_address() const {
    std::lock_guard lock(mutex_);
    return local_address_;
}

// Ranks of this host may come over loopback, those of others do not.
void TcpMember::note_interface(int socket) {
    const std::string address = local_host(socket);
    std::lock_guard lock(mutex_);
    const bool loopback = local_address_.starts_with("127.") || local_address_ == "::1";
    if (local_address_.empty() || loopback) local_address_ = address;
}

void TcpMember::start_thread() {
    // Without bound, since threads of the program may hold up the first turn for long.
    last_tick_ = Clock::now();
    loop_.start([this](const std::exception &error) {
        const bool memory = dynamic_cast<const std::bad_alloc *>(&error) != nullptr;
        lose(memory ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_INTERNAL,
             fmt::format("the control plane of rank {} failed: {}", rank_, error.what()));
    });
    running_ = true;
    const double period = std::chrono::duration<double>(std::min(heartbeat_, silence_ / 4)).count();
    loop_.post([this, period] { loop_.every(period, [this] { tick(); }); });
}

void TcpMember::end_thread() noexcept {
    if (!running_) return;
    running_ = false;
    try {
        // Shared, since the background thread may be held up for longer than we wait.
        const auto finished = std::make_shared<std::atomic<bool>>(false);
        const auto deadline = Deadline::after(last_words_seconds);
        while (!*finished && !deadline.expired()) {
            loop_.post([this, finished] {
                // The thread that found the first cause may not have come to post this yet.
                if (failure_.broken()) {
                    spread_failure(failure_.status(), failure_.why());
                    deliver_failure();
                }
                *finished = finish_links();
                std::lock_guard lock(mutex_);
                changed_.notify_all();
            });
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, std::chrono::milliseconds(5), [&] { return finished->load(); });
        }
    } catch (...) {
        // Out of memory: last words remain unsaid, and peers see the connection end.
    }
    loop_.stop();
}

void TcpMember::tick() {
    const auto now = Clock::now();
    const auto expected = last_tick_ + std::min(heartbeat_, silence_ / 4);
    last_tick_ = now;
    look_after_peers(now, std::max(now - expected, Clock::duration::zero()));
}

void TcpMember::everyone_met() {
    std::lock_guard lock(mutex_);
    met_ = true;
    changed_.notify_all();
}

void TcpMember::gathered(std::vector<std::string> contributions) {
    {
        std::lock_guard lock(mutex_);
        answer_ = std::move(contributions);
        answered_ = true;
    }
    tell_event();
}

void TcpMember::everyone_left() {
    {
        std::lock_guard lock(mutex_);
        all_left_ = true;
    }
    tell_event();
}

void TcpMember::rank_left(int rank) {
    gone_[static_cast<std::size_t>(rank)] = true;
    tell_event();
}

void TcpMember::on_event(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
}

void TcpMember::tell_event() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (wake_) wake_();
}

void TcpMember::sleep_until_event(Deadline deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.moment(), [&] {
        return answer_.has_value() || failure_.broken() || (leaving_ && all_left_);
    });
}

void TcpMember::lose(vescomm_status_t status, const std::string &why) noexcept {
    if (!left_) failure_.set(status, why);
}

void TcpMember::fail(vescomm_status_t status, const std::string &why) noexcept {
    failure_.set(status, why);
}

// In the thread that found the first cause.
void TcpMember::on_failure() noexcept {
    try {
        loop_.post([this] {
            // The others first: the program may end as soon as it learns of this, and then they
            // would only see that this rank is gone.
            spread_failure(failure_.status(), failure_.why());
            deliver_failure();
            std::lock_guard lock(mutex_);
            changed_.notify_all();
        });
    } catch (...) {
        // Out of memory: peers learn of it when this rank's connections end.
        std::lock_guard lock(mutex_);
        changed_.notify_all();
    }
}

void TcpMember::deliver_failure() {
    std::lock_guard lock(delivery_);
    if (delivered_ || !listener_) return;
    delivered_ = true;
    listener_(failure_.status(), failure_.why());
}

void TcpMember::listen(Listener listener) {
    {
        std::lock_guard lock(delivery_);
        listener_ = std::move(listener);
    }
    if (failure_.broken()) deliver_failure();
}

void TcpMember::check() {
    if (!failure_.broken()) return;
    deliver_failure();
    failure_.check();
}

void TcpMember::meet(Deadline deadline) {
    const auto begin = Clock::now();
    {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, deadline.moment(), [&] { return met_ || failure_.broken(); });
        if (met_) return;
    }
    if (!failure_.broken())
        give_up(0, std::chrono::duration<double>(Clock::now() - begin).count(),
                "waiting for all ranks to come");
    failure_.check();
}

void TcpMember::start_all_gather(std::string_view label, std::string_view bytes) {
    check();
    if (left_ || leaving_)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("rank {} has left the communicator and cannot do {} any more",
                                rank_, quote(label)));
    if (bytes.size() > largest_gather_bytes) {
        // The others must not wait for a contribution that never comes.
        fail(VESCOMM_ERROR_INVALID_ARGUMENT,
             fmt::format("{} would gather {} bytes from rank {}; the control plane takes {} in all",
                         quote(label), bytes.size(), rank_, largest_gather_bytes));
        check();
    }
    label_ = label;
    loop_.post(
        [this, head = ContributionHead{++sequence_, bytes.size(), label_},
         copy = std::string(bytes)]() mutable { contribute(std::move(head), std::move(copy)); });
}

std::optional<std::vector<std::string>> TcpMember::test_all_gather() {
    if (answered_) {
        std::lock_guard lock(mutex_);
        answered_ = false;
        return std::exchange(answer_, std::nullopt);
    }
    check();
    return {};
}

void TcpMember::expire_all_gather(double waited_seconds) {
    if (!failure_.broken()) give_up(sequence_, waited_seconds, quote(label_));
    check();
    throw Error(VESCOMM_ERROR_INTERNAL, "an all-gather ended without a result; please report this");
}

// Asks rank 0 who is missing, and fails the communicator with or without its answer.
void TcpMember::give_up(std::uint64_t sequence, double waited_seconds, std::string_view what) {
    loop_.post([this, sequence, waited_seconds] { expire(sequence, waited_seconds); });
    {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, clock_duration(verdict_seconds), [&] { return failure_.broken(); });
    }
    if (!failure_.broken())
        fail(VESCOMM_ERROR_TIMEOUT,
             fmt::format("rank {} gave up {} after {:.1f} s, and rank 0 did not say who is "
                         "missing; see whether rank 0 is running",
                         rank_, what, waited_seconds));
}

void TcpMember::start_leave() {
    if (leaving_) return;
    leaving_ = true;
    if (!failure_.broken()) loop_.post([this] { say_goodbye(); });
}

bool TcpMember::test_leave() {
    const std::lock_guard lock(mutex_);
    return all_left_ || failure_.broken() || left_;
}

}  // namespace vescomm
