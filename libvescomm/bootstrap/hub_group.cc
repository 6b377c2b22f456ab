// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/handshake.h"

namespace vescomm::internal {

int HubGroup::rank_of(int process) const {
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
        if (members_[rank].process == process) return static_cast<int>(rank);
    return -1;
}

// Returns the start of every payload: the id of the group.
std::string HubGroup::payload() const {
    std::string payload;
    put_group(payload, id_);
    return payload;
}

void HubGroup::send_all(FrameType type, const std::string &payload) {
    for (const Member &member : members_)
        if (member.opened && !member.gone) ports_.send(member.process, type, payload);
}

// ---- opening ----

void HubGroup::open(int process, std::vector<int> members, std::string label) {
    if (members_.empty()) {
        label_ = std::move(label);
        gathering_.emplace(static_cast<int>(members.size()));
        for (const int member : members) members_.push_back({.process = member});
    } else if (!std::ranges::equal(members, members_, {}, {}, &Member::process)) {
        fail(VESCOMM_ERROR_MISMATCH,
             fmt::format("the processes of {} disagree about the members: process {} of the job "
                         "names {} members, others {}; all must give the same",
                         quote(label_), process, members.size(), members_.size()));
    }
    const int rank = rank_of(process);
    if (rank < 0 || members_[rank].opened) return;
    members_[rank].opened = true;
    ++opened_;
    if (failure_)
        return ports_.send(process, FrameType::failure,
                           failure_payload(id_, failure_->status, failure_->what()));
    for (const Member &member : members_)
        if (const std::string absence = ports_.absence(member.process); !absence.empty())
            return lose(member.process, absence);
    if (opened_ < members_.size()) return;
    std::string opened = payload();
    put_number(opened, number_);
    send_all(FrameType::opened, opened);
}

std::vector<int> HubGroup::not_opened() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
        if (!members_[rank].opened) ranks.push_back(static_cast<int>(rank));
    return ranks;
}

// ---- frames ----

bool HubGroup::receive(int process, FrameType type, WireReader &reader) {
    const int rank = rank_of(process);
    if (rank < 0 || !members_[rank].opened) return false;
    switch (type) {
        case FrameType::contribution: {
            std::optional<ContributionHead> head = read_contribution_head(reader);
            if (!head) return false;
            if (!failure_) begin(rank, std::move(*head));
            return true;
        }
        case FrameType::data:
            if (failure_) return true;
            fail(gathering_->add(rank, reader.rest()));
            answer_if_complete();
            return true;
        case FrameType::expired: {
            const auto sequence = reader.number<std::uint64_t>();
            const auto milliseconds = reader.number<std::uint64_t>();
            if (!reader.finished()) return false;
            if (!failure_) expire(rank, sequence, static_cast<double>(milliseconds) / 1e3);
            return true;
        }
        case FrameType::failure: {
            const Error error = read_failure(reader);
            fail(error.status, error.what());
            return true;
        }
        case FrameType::goodbye:
            leave(rank);
            return true;
        case FrameType::note:
            return pass_note(rank, reader);
        default:
            return false;
    }
}

void HubGroup::begin(int rank, ContributionHead head) {
    const std::string label = head.label;
    fail(gathering_->begin(rank, std::move(head)));
    for (std::size_t other = 0; other < members_.size(); ++other)
        if (members_[other].left)
            fail(VESCOMM_ERROR_MISMATCH,
                 fmt::format("rank {} calls {}, but rank {} has left the communicator; all ranks "
                             "must make the same calls in the same order",
                             rank, quote(label), other));
    answer_if_complete();
}

void HubGroup::answer_if_complete() {
    if (failure_ || !gathering_->complete()) return;
    std::string head = payload();
    put_number(head, gathering_->sequence());
    auto contributions = gathering_->take();
    auto pieces = std::make_shared<std::vector<std::string>>();
    pieces->reserve(contributions.size() + 1);
    pieces->push_back(encode_sizes(contributions));
    for (std::string &contribution : contributions) pieces->push_back(std::move(contribution));
    for (const Member &member : members_) {
        ports_.send(member.process, FrameType::result, head);
        ports_.send_data(member.process, id_, pieces);
    }
}

void HubGroup::expire(int asking, std::uint64_t sequence, double waited_seconds) {
    if (sequence == 0) {
        const std::vector<int> missing = not_opened();
        if (missing.empty()) return;
        return fail(VESCOMM_ERROR_TIMEOUT,
                    fmt::format("{} did not take part in {} within the {:.1f} s for which rank {} "
                                "waited; see what they do instead, or allow more time",
                                list_ranks(missing), quote(label_), waited_seconds, asking));
    }
    if (sequence < gathering_->sequence() || !gathering_->begun())
        return fail(
            VESCOMM_ERROR_TIMEOUT,
            fmt::format("rank {} stopped waiting for the result of collective call {} after "
                        "{:.1f} s, just before it arrived; allow more time",
                        asking, sequence, waited_seconds));
    fail(VESCOMM_ERROR_TIMEOUT,
         fmt::format("{} did not arrive at {} within the {:.1f} s for which rank {} waited; see "
                     "what they do instead, or allow more time",
                     list_ranks(gathering_->missing()), quote(gathering_->label()), waited_seconds,
                     asking));
}

bool HubGroup::pass_note(int from, WireReader &reader) {
    const auto to = reader.number<std::uint32_t>();
    if (!reader.good() || to >= members_.size() || reader.rest().size() > max_note_bytes)
        return false;
    const Member &member = members_[to];
    if (failure_ || !member.opened || member.left || member.gone) return true;
    std::string note = payload();
    put_number(note, static_cast<std::uint32_t>(from));
    ports_.send(member.process, FrameType::note, note.append(reader.rest()));
    return true;
}

// ---- the end ----

void HubGroup::leave(int rank) {
    Member &member = members_[rank];
    if (member.left) return;
    std::string left = payload();
    put_number(left, static_cast<std::uint32_t>(rank));
    member.left = true;
    ++left_;
    if (failure_) return;
    send_all(FrameType::goodbye, left);
    if (gathering_->begun())
        return fail(VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank {} left the communicator while rank {} calls {}; all ranks "
                                "must make the same calls in the same order",
                                rank, gathering_->first(), quote(gathering_->label())));
    if (left_ < members_.size()) return;
    for (const Member &each : members_)
        if (!each.gone) ports_.send(each.process, FrameType::farewell, payload());
}

void HubGroup::lose(int process, const std::string &absence) {
    const int rank = rank_of(process);
    if (rank < 0 || members_[rank].gone) return;
    members_[rank].gone = true;
    if (members_[rank].left) return;
    fail(VESCOMM_ERROR_PEER_FAILED,
         fmt::format("rank {} of {} {}", rank, members_.size(), absence));
}

void HubGroup::fail(vescomm_status_t status, const std::string &why) {
    if (failure_) return;
    failure_.emplace(status, why);
    send_all(FrameType::failure, failure_payload(id_, status, why));
}

void HubGroup::fail(const std::optional<Error> &error) {
    if (error) fail(error->status, error->what());
}

bool HubGroup::done() const {
    return std::ranges::all_of(members_,
                               [](const Member &member) { return member.left || member.gone; });
}

}  // namespace vescomm::internal
