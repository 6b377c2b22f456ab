// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_root.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace vescomm {

namespace {

// Guests beyond the ranks themselves, so that strays do not crowd them out.
constexpr std::size_t spare_guests = 64;

double seconds(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace

TcpRoot::TcpRoot(const TcpControlOptions &options, std::vector<Descriptor> listeners)
    : TcpMember(options),
      linger_seconds_(options.linger_seconds),
      seats_(static_cast<std::size_t>(options.ranks)),
      awaited_(options.ranks - 1),
      gathering_(options.ranks),
      door_(loop_, std::move(listeners), secret_,
            static_cast<std::size_t>(options.ranks) + spare_guests,
            [this](TcpDoor::Visitor visitor) { admit(std::move(visitor)); }),
      expected_(static_cast<std::uint32_t>(options.ranks)) {
    loop_.post([this] { door_.open(); });
    start_thread();
}

// ---- coming ----

void TcpRoot::meet(Deadline deadline) {
    try {
        TcpMember::meet(deadline);
    } catch (const Error &error) {
        // Ranks that come a little later deserve to hear why. After a timeout they have had time.
        if (error.status != VESCOMM_ERROR_TIMEOUT) {
            const auto moment =
                std::min(deadline.moment(), Deadline::after(linger_seconds_).moment());
            std::unique_lock lock(mutex_);
            changed_.wait_until(lock, moment, [&] { return everyone_told_; });
        }
        throw;
    }
}

void TcpRoot::admit(TcpDoor::Visitor visitor) {
    const Claim claim = visitor.claim;
    const std::string address = peer_text(visitor.socket.get());
    ++visitors_;
    expected_ = std::max(expected_, claim.ranks);
    if (!failure_.broken()) check_claim(claim, address);
    if (failure_.broken()) return refuse(std::move(visitor));

    const int rank = static_cast<int>(claim.rank);
    tune_connection(visitor.socket.get(), seconds(silence()));
    note_interface(visitor.socket.get());
    Seat &seat = seats_[rank];
    seat.address = address;
    seat.link =
        std::make_shared<TcpLink>(loop_, std::move(visitor.socket), std::move(visitor.session));
    seat.link->send(FrameType::welcome);
    --awaited_;
    if (awaited_ == 0) {
        door_.close();
        for (const Seat &other : seats_)
            if (other.link != nullptr) other.link->send(FrameType::start);
        everyone_met();
    }
    // Last, since what the rank has sent already is heard at once.
    seat.link->start(
        {[this, rank](FrameType type, std::string_view payload) { hear(rank, type, payload); },
         [this, rank](const std::string &how) { take_end(rank, how); }},
        visitor.rest);
}

void TcpRoot::check_claim(const Claim &claim, const std::string &address) {
    if (claim.ranks != static_cast<std::uint32_t>(ranks_) || claim.rank >= claim.ranks)
        return lose(VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank {} at {} says that there are {} ranks, rank 0 says {}; start "
                                "all of them with the same number",
                                claim.rank, address, claim.ranks, ranks_));
    if (claim.rank == 0)
        return lose(VESCOMM_ERROR_MISMATCH,
                    fmt::format("two processes say that they are rank 0 of {}, one of them at {}; "
                                "give every process a rank of its own",
                                ranks_, address));
    const Seat &seat = seats_[claim.rank];
    if (seat.link != nullptr)
        lose(VESCOMM_ERROR_MISMATCH,
             fmt::format("two processes say that they are rank {} of {}, at {} and at {}; give "
                         "every process a rank of its own",
                         claim.rank, ranks_, seat.address, address));
}

void TcpRoot::refuse(TcpDoor::Visitor visitor) {
    const auto link =
        std::make_shared<TcpLink>(loop_, std::move(visitor.socket), std::move(visitor.session));
    link->send_last(FrameType::failure, failure_payload(failure_.status(), failure_.why()));
    link->finish();
    note_who_was_told();
}

// Whoever has come is told at once; others may still be on their way.
void TcpRoot::note_who_was_told() {
    if (visitors_ + 1 < expected_) return;
    std::lock_guard lock(mutex_);
    everyone_told_ = true;
    changed_.notify_all();
}

void TcpRoot::expire_meeting(int asking, double waited_seconds) {
    std::vector<int> missing;
    for (int rank = 1; rank < ranks_; ++rank)
        if (seats_[rank].link == nullptr) missing.push_back(rank);
    if (missing.empty()) return;
    lose(VESCOMM_ERROR_TIMEOUT,
         fmt::format("{} of {} did not come within the {:.1f} s for which rank {} waited; see "
                     "whether all processes started and can reach rank 0",
                     list_ranks(missing), ranks_, waited_seconds, asking));
}

// ---- staying ----

void TcpRoot::hear(int rank, FrameType type, std::string_view payload) {
    // News that cross a failure on the way change nothing any more.
    if (failure_.broken()) return;
    switch (type) {
        case FrameType::heartbeat:
            return;
        case FrameType::contribution: {
            std::optional<ContributionHead> head = read_contribution_head(payload);
            if (!head) return report_defect(rank);
            return add_head(rank, std::move(*head));
        }
        case FrameType::data:
            return add_bytes(rank, payload);
        case FrameType::expired: {
            WireReader reader(payload);
            const auto sequence = reader.number<std::uint64_t>();
            const auto milliseconds = reader.number<std::uint64_t>();
            if (!reader.finished()) return report_defect(rank);
            const double waited_seconds = static_cast<double>(milliseconds) / 1e3;
            if (sequence == 0) return expire_meeting(rank, waited_seconds);
            return expire_gathering(rank, sequence, waited_seconds);
        }
        case FrameType::failure: {
            const Error error = read_failure(payload);
            return lose(error.status, error.what());
        }
        case FrameType::goodbye:
            return take_goodbye(rank);
        default:
            return report_defect(rank);
    }
}

void TcpRoot::contribute(ContributionHead head, std::string bytes) {
    if (failure_.broken()) return;
    const bool any = !bytes.empty();
    add_head(0, std::move(head));
    if (any && !failure_.broken()) add_bytes(0, bytes);
}

void TcpRoot::add_head(int rank, ContributionHead head) {
    const std::string label = head.label;
    if (const auto error = gathering_.begin(rank, std::move(head)))
        return lose(error->status, error->what());
    for (int other = 0; other < ranks_; ++other)
        if (seats_[other].goodbye)
            return lose(VESCOMM_ERROR_MISMATCH,
                        fmt::format("rank {} does {}, but rank {} has left the communicator; all "
                                    "ranks must make the same calls in the same order",
                                    rank, quote(label), other));
    answer_if_complete();
}

void TcpRoot::add_bytes(int rank, std::string_view bytes) {
    if (const auto error = gathering_.add(rank, bytes)) return lose(error->status, error->what());
    answer_if_complete();
}

void TcpRoot::answer_if_complete() {
    if (!gathering_.complete()) return;
    std::string head;
    put_number(head, gathering_.sequence());
    auto contributions = gathering_.take();
    auto pieces = std::make_shared<std::vector<std::string>>();
    pieces->reserve(contributions.size() + 1);
    pieces->push_back(encode_sizes(contributions));
    pieces->insert(pieces->end(), contributions.begin(), contributions.end());
    for (const Seat &seat : seats_) {
        if (seat.link == nullptr) continue;
        seat.link->send(FrameType::result, head);
        seat.link->send_data(pieces);
    }
    gathered(std::move(contributions));
}

void TcpRoot::expire(std::uint64_t sequence, double waited_seconds) {
    if (sequence == 0) return expire_meeting(0, waited_seconds);
    expire_gathering(0, sequence, waited_seconds);
}

void TcpRoot::expire_gathering(int asking, std::uint64_t sequence, double waited_seconds) {
    if (sequence < gathering_.sequence() || !gathering_.anyone_here())
        return lose(VESCOMM_ERROR_TIMEOUT,
                    fmt::format("rank {} stopped waiting for the result of common call {} after "
                                "{:.1f} s, just before it arrived; allow more time",
                                asking, sequence, waited_seconds));
    lose(VESCOMM_ERROR_TIMEOUT,
         fmt::format("{} did not arrive at {} within the {:.1f} s for which rank {} waited; see "
                     "what they do instead, or allow more time",
                     list_ranks(gathering_.missing()), quote(gathering_.label()), waited_seconds,
                     asking));
}

void TcpRoot::report_defect(int rank) {
    lose(VESCOMM_ERROR_INTERNAL,
         fmt::format("rank {} at {} broke the protocol of the control plane; see whether all ranks "
                     "run the same vescomm, and report this if they do",
                     rank, seats_[rank].address));
}

void TcpRoot::spread_failure(vescomm_status_t status, const std::string &why) {
    for (const Seat &seat : seats_)
        if (seat.link != nullptr)
            seat.link->send_last(FrameType::failure, failure_payload(status, why));
    note_who_was_told();
}

void TcpRoot::look_after_peers(Clock::time_point now, Clock::duration stalled) {
    door_.tidy(now);
    if (failure_.broken()) return;
    for (int rank = 1; rank < ranks_; ++rank) {
        const Seat &seat = seats_[rank];
        if (seat.link == nullptr || !seat.link->open()) continue;
        seat.link->forgive(stalled);
        if (now - seat.link->heard() > silence() && !seat.goodbye)
            return lose(VESCOMM_ERROR_PEER_FAILED,
                        fmt::format("rank {} at {} has been silent for {:.1f} s: its machine or "
                                    "network is gone, or it was stopped",
                                    rank, seat.address, seconds(now - seat.link->heard())));
        if (seat.link->quiet() && now - seat.link->spoke() >= heartbeat() / 2)
            seat.link->send(FrameType::heartbeat);
    }
}

// ---- going ----

void TcpRoot::say_goodbye() {
    for (const Seat &seat : seats_)
        if (seat.link != nullptr) seat.link->send(FrameType::goodbye);
    take_goodbye(0);
}

void TcpRoot::take_goodbye(int rank) {
    if (seats_[rank].goodbye) return;
    seats_[rank].goodbye = true;
    rank_left(rank);
    if (gathering_.anyone_here())
        return lose(VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank {} left the communicator while rank {} does {}; all ranks "
                                "must make the same calls in the same order",
                                rank, gathering_.first(), quote(gathering_.label())));
    if (++goodbyes_ < ranks_) return;
    farewell_ = true;
    for (const Seat &seat : seats_)
        if (seat.link != nullptr) seat.link->send(FrameType::farewell);
    if (everyone_gone()) everyone_left();
}

void TcpRoot::take_end(int rank, const std::string &how) {
    if (!seats_[rank].goodbye)
        return lose(VESCOMM_ERROR_PEER_FAILED,
                    fmt::format("rank {} of {} at {} died, or ended without leaving: its "
                                "connection {}",
                                rank, ranks_, seats_[rank].address, how));
    // Rank 0 is the last to go: closing first could cut off farewells that are on their way.
    if (farewell_ && everyone_gone()) everyone_left();
}

bool TcpRoot::everyone_gone() const {
    return std::none_of(seats_.begin(), seats_.end(),
                        [](const Seat &seat) { return seat.link != nullptr && seat.link->open(); });
}

bool TcpRoot::finish_links() {
    door_.close();
    for (const Seat &seat : seats_)
        if (seat.link != nullptr) seat.link->finish();
    return everyone_gone();
}

}  // namespace vescomm
