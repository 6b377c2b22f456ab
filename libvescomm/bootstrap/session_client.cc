// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/session_client.h"

#include <fmt/format.h>

#include <utility>

#include "bootstrap/handshake.h"

namespace vescomm::internal {

SessionClient::SessionClient(int rank, int ranks, Port port, std::function<void()> changed)
    : rank_(rank),
      port_(std::move(port)),
      changed_(std::move(changed)),
      processes_(static_cast<std::size_t>(ranks)) {}

void SessionClient::send(FrameType type, const GroupId &group, const std::string &rest) {
    std::string payload;
    put_group(payload, group);
    port_.send(type, payload + rest);
}

// ---- the session ----

void SessionClient::receive(FrameType type, std::string_view payload) {
    if (failure_ || type == FrameType::heartbeat) return;
    WireReader reader(payload);
    if (type == FrameType::start) return receive_start(reader);
    if (type == FrameType::ended) return receive_ended(reader);
    const GroupId id = get_group(reader);
    if (!reader.good()) return report_violation();
    if (id == whole_session) {
        if (type != FrameType::failure) return report_violation();
        const Error error = read_failure(reader);
        return fail(error.status, error.what());
    }
    // Frames that arrive after the end of their group are ignored.
    const auto found = groups_.find(id);
    if (found == groups_.end()) return;
    if (!receive_for(found->second, type, reader)) report_violation();
}

void SessionClient::receive_start(WireReader &reader) {
    std::uint32_t rank = reader.number<std::uint32_t>();
    for (; reader.good() && !reader.rest().empty(); ++rank) {
        const auto size = reader.number<std::uint8_t>();
        if (rank >= processes_.size() || reader.rest().size() < size) return report_violation();
        processes_[rank].listens = reader.take(size);
        processes_[rank].listener = reader.number<std::uint64_t>();
    }
    if (!reader.good()) return report_violation();
    if (rank < processes_.size()) return;
    started_ = true;
    changed_();
}

void SessionClient::receive_ended(WireReader &reader) {
    const auto rank = reader.number<std::uint32_t>();
    const auto how = reader.number<std::uint8_t>();
    if (!reader.good() || how > static_cast<std::uint8_t>(Ended::silent) ||
        rank >= processes_.size() || reader.rest().empty())
        return report_violation();
    if (processes_[rank].absence.empty()) {
        ++absent_;
        if (how != static_cast<std::uint8_t>(Ended::closed)) ++died_;
    }
    processes_[rank].absence = reader.rest();
    processes_[rank].how = static_cast<Ended>(how);
}

void SessionClient::report_violation() {
    fail(VESCOMM_ERROR_INTERNAL,
         "rank 0 broke the protocol of the control plane; see whether all ranks run the same "
         "vescomm, and report this if they do");
}

void SessionClient::lose_hub(Ended how, const std::string &absence) {
    if (processes_[0].absence.empty()) {
        ++absent_;
        ++died_;
    }
    processes_[0].absence = absence;
    processes_[0].how = how;
    fail(VESCOMM_ERROR_PEER_FAILED, fmt::format("rank 0 of {} {}", processes_.size(), absence));
}

void SessionClient::fail(vescomm_status_t status, const std::string &why) {
    if (failure_) return;
    // A report may end groups.
    std::vector<std::shared_ptr<GroupState>> states;
    for (const auto &[id, group] : groups_) states.push_back(group.state);
    failure_.emplace(status, why);
    for (auto &[id, group] : groups_) group.from_hub = true;
    for (const auto &state : states) lose(*state, status, why);
    changed_();
}

// ---- groups ----

// A report may end the group: nothing reads it afterwards.
bool SessionClient::receive_for(Group &group, FrameType type, WireReader &reader) {
    const std::shared_ptr<GroupState> state = group.state;
    switch (type) {
        case FrameType::opened: {
            const auto number = reader.number<std::uint32_t>();
            if (!reader.finished()) return false;
            state->report_opened(number);
            return true;
        }
        case FrameType::result: {
            const auto sequence = reader.number<std::uint64_t>();
            if (!reader.finished() || group.reader || !group.contributed ||
                sequence != group.answered + 1)
                return false;
            group.answered = sequence;
            group.reader.emplace(state->ranks());
            return true;
        }
        case FrameType::data: {
            if (!group.reader || !group.reader->add(reader.rest())) return false;
            if (!group.reader->complete()) return true;
            group.contributed = false;
            std::vector<std::string> contributions = group.reader->take();
            group.reader.reset();
            state->report_answer(std::move(contributions));
            return true;
        }
        case FrameType::failure: {
            const Error error = read_failure(reader);
            group.from_hub = true;
            lose(*state, error.status, error.what());
            return true;
        }
        case FrameType::goodbye: {
            const auto rank = reader.number<std::uint32_t>();
            if (!reader.finished() || rank >= state->members.size()) return false;
            state->report_left(static_cast<int>(rank));
            return true;
        }
        case FrameType::note: {
            const auto rank = reader.number<std::uint32_t>();
            if (!reader.good() || rank >= state->members.size() ||
                reader.rest().size() > max_note_bytes)
                return false;
            state->report_note(static_cast<int>(rank), std::string(reader.rest()));
            return true;
        }
        case FrameType::farewell:
            state->report_all_left();
            return reader.finished();
        default:
            return false;
    }
}

void SessionClient::lose(GroupState &group, vescomm_status_t status, const std::string &why) {
    // Rank 0 may end when all have left, before the caller here has seen that.
    if (!group.indifferent && !group.all_left()) group.failure.set(status, why);
    group.wake();
}

void SessionClient::open(const std::shared_ptr<GroupState> &group, const std::string &label) {
    if (failure_) return lose(*group, failure_->status, failure_->what());
    groups_[group->id] = {.state = group};
    std::string rest;
    put_number(rest, static_cast<std::uint32_t>(group->members.size()));
    for (const int member : group->members) put_number(rest, static_cast<std::uint32_t>(member));
    send(FrameType::open, group->id, rest + label);
}

void SessionClient::contribute(const std::shared_ptr<GroupState> &group,
                               const ContributionHead &head, std::string bytes) {
    const auto found = groups_.find(group->id);
    if (found == groups_.end() || group->failure.broken()) return;
    found->second.contributed = true;
    send(FrameType::contribution, group->id, encode(head));
    if (bytes.empty()) return;
    auto pieces = std::make_shared<std::vector<std::string>>();
    pieces->push_back(std::move(bytes));
    port_.send_data(group->id, std::move(pieces));
}

void SessionClient::expire(const std::shared_ptr<GroupState> &group, std::uint64_t sequence,
                           double waited_seconds) {
    std::string rest;
    put_number(rest, sequence);
    put_number(rest, static_cast<std::uint64_t>(waited_seconds * 1e3));
    send(FrameType::expired, group->id, rest);
}

void SessionClient::spread_failure(const std::shared_ptr<GroupState> &group) {
    const auto found = groups_.find(group->id);
    if (failure_ || found == groups_.end() || !found->second.owes_failure()) return;
    found->second.spread = true;
    port_.send(FrameType::failure,
               failure_payload(group->id, group->failure.status(), group->failure.why()));
}

void SessionClient::spread_failures() {
    // The hub may answer at once, and change the groups.
    std::vector<std::shared_ptr<GroupState>> states;
    for (const auto &[id, group] : groups_)
        if (group.owes_failure()) states.push_back(group.state);
    for (const auto &state : states) spread_failure(state);
}

void SessionClient::send_note(const std::shared_ptr<GroupState> &group, int rank,
                              const std::string &bytes) {
    const auto found = groups_.find(group->id);
    if (failure_ || found == groups_.end() || found->second.said_goodbye) return;
    std::string rest;
    put_number(rest, static_cast<std::uint32_t>(rank));
    send(FrameType::note, group->id, rest + bytes);
}

void SessionClient::leave(const std::shared_ptr<GroupState> &group) {
    const auto found = groups_.find(group->id);
    if (found != groups_.end() && std::exchange(found->second.said_goodbye, true)) return;
    // The hub is gone, so there is nothing to wait for.
    if (failure_) return group->report_all_left();
    if (found != groups_.end()) send(FrameType::goodbye, group->id);
}

void SessionClient::forget(const std::shared_ptr<GroupState> &group) {
    spread_failure(group);
    const auto found = groups_.find(group->id);
    if (found != groups_.end() && !found->second.said_goodbye && !group->failure.broken())
        port_.send(FrameType::failure,
                   failure_payload(group->id, VESCOMM_ERROR_PEER_FAILED,
                                   fmt::format("rank {} of {} ended without leaving", group->rank,
                                               group->ranks())));
    leave(group);
    groups_.erase(group->id);
}

}  // namespace vescomm::internal
