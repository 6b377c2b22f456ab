// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub.h"

#include <fmt/format.h>

#include <algorithm>

namespace vescomm::internal {

namespace {

double seconds(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
}

}  // namespace

Hub::Hub(Network &network, const HubOptions &options, Local local)
    : network_(network),
      options_(options),
      local_(std::move(local)),
      processes_(static_cast<std::size_t>(options.ranks)),
      awaited_(options.ranks - 1),
      expected_(static_cast<std::uint32_t>(options.ranks)) {
    processes_[0].joined = true;
    if (awaited_ == 0) start_session();
}

// ---- joining ----

void Hub::admit(const Claim &claim, std::unique_ptr<Link> link, const std::string &rest,
                std::string welcome) {
    if (!link->open()) return;
    const std::string address = link->stream().peer();
    ++joined_;
    expected_ = std::max(expected_, claim.ranks);
    if (!failure_) check_claim(claim, address);
    if (failure_) return refuse(std::move(link));

    const int rank = static_cast<int>(claim.rank);
    link->stream().limit_silence(seconds(options_.silence));
    Process &process = processes_[rank];
    process.address = address;
    process.listener = {.address = {parse_tcp_address(address, "a peer").host, claim.port},
                        .number = claim.listener};
    process.beside = stays_on_machine(link->stream());
    // The interface that a process on another machine reaches takes precedence, then any but
    // loopback.
    const std::string host = link->stream().local().host;
    if (host_.empty() || (!process.beside && !reached_) ||
        (!reached_ && is_loopback(host_) && !is_loopback(host)))
        host_ = host;
    reached_ = reached_ || !process.beside;
    process.joined = true;
    process.link = std::move(link);
    process.link->send(FrameType::welcome, std::move(welcome));
    if (--awaited_ == 0) start_session();
    // Last, because frames that have already arrived are handled at once.
    process.link->start(
        {[this, rank](FrameType type, std::string_view payload) { receive(rank, type, payload); },
         [this, rank](const std::string &how) {
             remove(rank, Ended::died,
                    fmt::format("at {} died, or ended without leaving: its "
                                "connection {}",
                                processes_[rank].address, how));
         }},
        rest);
}

void Hub::check_claim(const Claim &claim, const std::string &address) {
    if (claim.build != options_.build)
        return fail(VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank {} at {} runs vescomm {}, rank 0 runs {}; use the same build "
                                "on all ranks",
                                claim.rank, address, claim.build, options_.build));
    if (claim.ranks != static_cast<std::uint32_t>(options_.ranks) || claim.rank >= claim.ranks)
        return fail(VESCOMM_ERROR_MISMATCH,
                    fmt::format("rank {} at {} says that there are {} ranks, rank 0 says {}; start "
                                "all of them with the same number",
                                claim.rank, address, claim.ranks, options_.ranks));
    const Process &process = processes_[claim.rank];
    if (!process.joined) return;
    const std::string other = claim.rank == 0
                                  ? fmt::format("one of them at {}", address)
                                  : fmt::format("at {} and at {}", process.address, address);
    fail(VESCOMM_ERROR_MISMATCH,
         fmt::format("two processes say that they are rank {} of {}, {}; give every process a rank "
                     "of its own",
                     claim.rank, options_.ranks, other));
}

void Hub::refuse(std::unique_ptr<Link> link) {
    refused_.push_back(std::move(link));
    Link &refused = *refused_.back();
    refused.start({[](FrameType, std::string_view) {}, [](const std::string &) {}}, {});
    refused.send(FrameType::failure,
                 failure_payload(whole_session, failure_->status, failure_->what()));
    refused.finish();
}

// Sends every process the listeners of all processes, so that survivors can find one another. Those
// beside this process have connected at addresses that other machines may not reach.
void Hub::start_session() {
    if (reached_)
        for (Process &process : processes_)
            if (process.beside) process.listener.address.host = host_;
    std::string payload;
    const auto send_all = [&] {
        for (int rank = 0; rank < options_.ranks; ++rank) send(rank, FrameType::start, payload);
        payload.clear();
    };
    if (options_.ranks > 1 && options_.listen) processes_[0].listener = options_.listen(host_);
    for (int rank = 0; rank < options_.ranks; ++rank) {
        if (payload.empty()) put_number(payload, static_cast<std::uint32_t>(rank));
        const auto &[address, number] = processes_[rank].listener;
        const std::string text = address.port == 0 ? "" : to_text(address).substr(0, 255);
        put_number(payload, static_cast<std::uint8_t>(text.size()));
        payload += text;
        put_number(payload, number);
        if (payload.size() > max_payload_bytes - 512) send_all();
    }
    if (!payload.empty()) send_all();
}

void Hub::expire_meeting(int asking, double waited_seconds) {
    std::vector<int> missing;
    for (int rank = 1; rank < options_.ranks; ++rank)
        if (!processes_[rank].joined) missing.push_back(rank);
    if (missing.empty()) return;
    std::string text = fmt::format(
        "{} of {} did not come within the {:.1f} s for which rank {} waited; see "
        "whether all processes started and can reach rank 0",
        list_ranks(missing), options_.ranks, waited_seconds, asking);
    if (const int abandoned = options_.abandoned ? options_.abandoned() : 0; abandoned > 0)
        text += fmt::format(
            "; {} reached it and ended before joining: see whether all processes have "
            "the same secret",
            abandoned == 1 ? "one connection" : fmt::format("{} connections", abandoned));
    fail(VESCOMM_ERROR_TIMEOUT, text);
}

void Hub::fail(vescomm_status_t status, const std::string &why) {
    if (failure_) return;
    failure_.emplace(status, why);
    for (int rank = 0; rank < options_.ranks; ++rank)
        send(rank, FrameType::failure, failure_payload(whole_session, status, why));
}

// ---- ports ----

void Hub::send(int rank, FrameType type, std::string payload) {
    if (rank == 0) {
        network_.post([local = local_, type, payload = std::move(payload)]() mutable {
            local(type, std::move(payload));
        });
        return;
    }
    if (processes_[rank].link) processes_[rank].link->send(type, std::move(payload));
}

void Hub::send_data(int rank, const GroupId &group, const Pieces &pieces) {
    if (rank != 0) {
        if (processes_[rank].link) processes_[rank].link->send_data(group, pieces);
        return;
    }
    for (const std::string &piece : *pieces) {
        if (piece.empty()) continue;
        std::string payload;
        put_group(payload, group);
        payload += piece;
        send(0, FrameType::data, std::move(payload));
    }
}

std::string Hub::absence(int rank) const {
    return processes_[rank].absence;
}

// ---- the session ----

void Hub::receive_local(FrameType type, std::string payload) {
    receive(0, type, payload);
}

HubGroup *Hub::find(const GroupId &id) {
    const auto found = groups_.find(id);
    return found == groups_.end() ? nullptr : &found->second;
}

void Hub::receive(int rank, FrameType type, std::string_view payload) {
    if (type == FrameType::heartbeat) return;
    if (type == FrameType::close)
        return remove(rank, Ended::closed,
                      fmt::format("at {} has ended its session", processes_[rank].address));
    WireReader reader(payload);
    const GroupId id = get_group(reader);
    if (!reader.good()) return report_violation(rank);
    if (id == whole_session) {
        if (type == FrameType::failure) {
            const Error error = read_failure(reader);
            return fail(error.status, error.what());
        }
        if (type != FrameType::expired) return report_violation(rank);
        reader.number<std::uint64_t>();
        const auto milliseconds = reader.number<std::uint64_t>();
        return expire_meeting(rank, static_cast<double>(milliseconds) / 1e3);
    }
    if (type == FrameType::open) {
        const auto count = reader.number<std::uint32_t>();
        std::vector<int> members;
        for (std::uint32_t i = 0; reader.good() && i < count; ++i) {
            const auto member = reader.number<std::uint32_t>();
            if (member >= processes_.size()) return report_violation(rank);
            members.push_back(static_cast<int>(member));
        }
        if (!reader.good() || members.empty() || std::ranges::find(members, rank) == members.end())
            return report_violation(rank);
        const auto [group, is_new] = groups_.try_emplace(id, *this, id, groups_so_far_);
        if (is_new) ++groups_so_far_;
        group->second.open(rank, std::move(members), std::string(reader.rest()));
        return;
    }
    // Frames that arrive after the end of their group are ignored.
    HubGroup *group = find(id);
    if (group == nullptr) return;
    if (!group->receive(rank, type, reader)) return report_violation(rank);
    if (group->done()) groups_.erase(id);
}

void Hub::report_violation(int rank) {
    Process &process = processes_[rank];
    remove(
        rank, Ended::died,
        fmt::format("at {} broke the protocol of the control plane; see whether all ranks run the "
                    "same vescomm, and report this if they do",
                    process.address));
}

// Records that a process is gone or no longer takes part.
void Hub::remove(int rank, Ended how, const std::string &absence) {
    Process &process = processes_[rank];
    if (!process.absence.empty()) return;
    process.absence = absence;
    process.closed = how == Ended::closed;
    if (process.link) process.link->close();
    if (failure_) return;
    if (!complete())
        return fail(VESCOMM_ERROR_PEER_FAILED,
                    fmt::format("rank {} of {} {}", rank, options_.ranks, absence));
    std::string payload;
    put_number(payload, static_cast<std::uint32_t>(rank));
    put_number(payload, static_cast<std::uint8_t>(how));
    payload += absence;
    for (int other = 0; other < options_.ranks; ++other)
        if (other != rank && processes_[other].absence.empty())
            send(other, FrameType::ended, payload);
    for (auto group = groups_.begin(); group != groups_.end();) {
        group->second.lose(rank, absence);
        group = group->second.done() ? groups_.erase(group) : std::next(group);
    }
}

void Hub::tick(Clock::duration stalled) {
    std::erase_if(refused_, [](const auto &link) { return !link->open(); });
    const Clock::time_point now = network_.now();
    for (int rank = 1; rank < options_.ranks; ++rank) {
        Process &process = processes_[rank];
        if (process.link == nullptr || !process.link->open()) continue;
        process.link->forgive(stalled);
        const Clock::duration silent = now - process.link->received_at();
        if (silent > options_.silence) {
            remove(
                rank, Ended::silent,
                fmt::format("at {} has been silent for {:.1f} s: its machine or network is gone, "
                            "or it was stopped",
                            process.address, seconds(silent)));
            continue;
        }
        if (process.link->quiet() && now - process.link->sent_at() >= options_.heartbeat / 2)
            process.link->send(FrameType::heartbeat);
    }
}

bool Hub::deserted() const {
    return std::ranges::none_of(
               processes_,
               [](const Process &process) { return process.link && process.link->open(); }) &&
           std::ranges::none_of(refused_, [](const auto &link) { return link->open(); });
}

void Hub::end_local() {
    remove(0, Ended::closed, "has ended its session");
}

void Hub::finish() {
    for (Process &process : processes_)
        if (process.link) process.link->finish();
}

}  // namespace vescomm::internal
