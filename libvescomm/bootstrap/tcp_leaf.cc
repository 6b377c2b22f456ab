// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_leaf.h"

#include <fmt/format.h>

#include "base/error.h"
#include "bootstrap/wire.h"

namespace vescomm {

TcpLeaf::TcpLeaf(const TcpControlOptions &options, Joined joined)
    : TcpMember(options), address_(peer_text(joined.socket.get())) {
    tune_connection(joined.socket.get(), options.silence_seconds);
    note_interface(joined.socket.get());
    link_ = std::make_shared<TcpLink>(loop_, std::move(joined.socket), std::move(joined.session));
    loop_.post([this, rest = std::move(joined.rest)] {
        link_->start({[this](FrameType type, std::string_view payload) { hear(type, payload); },
                      [this](const std::string &how) { take_end(how); }},
                     rest);
    });
    start_thread();
}

void TcpLeaf::hear(FrameType type, std::string_view payload) {
    if (failure_.broken()) return;
    switch (type) {
        case FrameType::heartbeat:
            return;
        case FrameType::start:
            return everyone_met();
        case FrameType::result: {
            WireReader reader(payload);
            const auto sequence = reader.number<std::uint64_t>();
            if (!reader.finished() || answer_ || !contributed_ || sequence != answered_ + 1)
                return report_defect();
            answered_ = sequence;
            answer_.emplace(ranks_);
            return;
        }
        case FrameType::data:
            if (!answer_ || !answer_->add(payload)) return report_defect();
            if (!answer_->complete()) return;
            contributed_ = false;
            gathered(answer_->take());
            answer_.reset();
            return;
        case FrameType::failure: {
            const Error error = read_failure(payload);
            return lose(error.status, error.what());
        }
        case FrameType::goodbye:
            root_left_ = true;
            rank_left(0);
            if (contributed_) report_left_root();
            return;
        case FrameType::farewell:
            farewell_ = true;
            link_->close();
            return everyone_left();
        default:
            return report_defect();
    }
}

void TcpLeaf::contribute(ContributionHead head, std::string bytes) {
    if (failure_.broken()) return;
    label_ = head.label;
    contributed_ = true;
    if (root_left_) return report_left_root();
    link_->send(FrameType::contribution, encode(head));
    if (bytes.empty()) return;
    auto pieces = std::make_shared<std::vector<std::string>>();
    pieces->push_back(std::move(bytes));
    link_->send_data(std::move(pieces));
}

void TcpLeaf::report_left_root() {
    lose(VESCOMM_ERROR_MISMATCH,
         fmt::format("rank {} does {}, but rank 0 has left the communicator; all ranks must make "
                     "the same calls in the same order",
                     rank_, quote(label_)));
}

void TcpLeaf::expire(std::uint64_t sequence, double waited_seconds) {
    std::string payload;
    put_number(payload, sequence);
    put_number(payload, static_cast<std::uint64_t>(waited_seconds * 1e3));
    link_->send(FrameType::expired, std::move(payload));
}

void TcpLeaf::say_goodbye() {
    link_->send(FrameType::goodbye);
    // Rank 0 has gone before us, in good order: nobody is left to wait for.
    if (!link_->open()) everyone_left();
}

void TcpLeaf::spread_failure(vescomm_status_t status, const std::string &why) {
    link_->send_last(FrameType::failure, failure_payload(status, why));
}

void TcpLeaf::look_after_peers(Clock::time_point now, Clock::duration stalled) {
    if (failure_.broken() || !link_->open()) return;
    link_->forgive(stalled);
    const Clock::duration silent = now - link_->heard();
    if (silent > silence() && !root_left_)
        return lose(VESCOMM_ERROR_PEER_FAILED,
                    fmt::format("rank 0 at {} has been silent for {:.1f} s: its machine or network "
                                "is gone, or it was stopped",
                                address_, std::chrono::duration<double>(silent).count()));
    if (link_->quiet() && now - link_->spoke() >= heartbeat() / 2)
        link_->send(FrameType::heartbeat);
}

void TcpLeaf::take_end(const std::string &how) {
    if (farewell_) return;
    if (root_left_) return everyone_left();
    lose(VESCOMM_ERROR_PEER_FAILED,
         fmt::format("rank 0 of {} at {} died, or ended without leaving: its connection {}", ranks_,
                     address_, how));
}

void TcpLeaf::report_defect() {
    lose(VESCOMM_ERROR_INTERNAL,
         fmt::format("rank 0 at {} broke the protocol of the control plane; see whether all ranks "
                     "run the same vescomm, and report this if they do",
                     address_));
}

bool TcpLeaf::finish_links() {
    link_->finish();
    return !link_->open();
}

}  // namespace vescomm
