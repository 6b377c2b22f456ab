// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_call_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace vescomm::internal {

namespace {

// Buffers whose names are known: the last ones.
constexpr std::size_t max_names = 4096;

// Calls of neighbours that wait until this rank has made its own.
constexpr std::size_t max_unexpected = 256;

// Other ranks to which a rank sends the counts of exchanges: rank 0 passes all of them on.
constexpr int max_count_notes = 256;

std::string on_this_node(std::vector<int> &ranks) {
    std::ranges::sort(ranks);
    return fmt::format("; {} {} of this node", ranks.size() == 1 ? "rank" : "ranks",
                       fmt::join(ranks, ", "));
}

}  // namespace

DeviceCallMatch::DeviceCallMatch(const std::shared_ptr<Communicator> &comm)
    : members_(comm->nodes().members(comm->nodes().node_of(comm->rank()))),
      own_(static_cast<std::size_t>(comm->nodes().local_rank(comm->rank()))),
      max_members_(static_cast<std::size_t>(comm->nodes().largest())),
      memory_(Memory::create(comm, DeviceCallBoard::bytes(max_members_), VESCOMM_HOST,
                             VESCOMM_PER_RANK)),
      notes_(*comm, memory_->id()) {
    for (std::size_t k = 1; k < members_.size(); ++k) {
        const std::size_t number = (own_ + k) % members_.size();
        peers_.push_back({.rank = members_[number], .number = number});
    }
}

DeviceCallBoard DeviceCallMatch::board(int rank) const {
    return {memory_->mapping()->base(rank), max_members_};
}

DeviceCallBoard DeviceCallMatch::own_board() const {
    return board(memory_->comm().rank());
}

void DeviceCallMatch::name_buffer(std::uint64_t number, const std::string &name) noexcept {
    try {
        names_[number] = name;
    } catch (const std::bad_alloc &) {
        return;  // it has a number
    }
    if (names_.size() > max_names) names_.erase(names_.begin());
}

std::string DeviceCallMatch::add(const DeviceCall &call, const ExchangeCounts &counts) noexcept {
    const DeviceCallBoard mine = own_board();
    ++calls_;
    mine.write(calls_, call, counts, members_);
    try {
        if (!counts.sent.empty() && notes_.connected()) exchanges_.add(calls_, counts);
        if (calls_ % DeviceCallNotes::max_calls == 0) send_to_nodes();
        if (!counts.sent.empty()) return compare_all();
        // If two ranks of the node differ, so do two that follow one another.
        if (!peers_.empty())
            if (std::string why = compare(peers_.front()); !why.empty()) return why;
        return compare_notes();
    } catch (const std::bad_alloc &) {
        return {};
    }
}

void DeviceCallMatch::leave() noexcept {
    own_board().write(++calls_, {.kind = DeviceCall::Kind::end}, {}, members_);
}

std::string DeviceCallMatch::difference(std::uint64_t number, const DeviceCall &mine, int rank,
                                        const DeviceCall &other) const {
    const bool places = mine.data != other.data || mine.source != other.source;
    return fmt::format(
        "call {} on the device communicator is {} on rank {} and {} on rank {}; every rank must "
        "make the same calls in the same order{}",
        number, mine.text(names_, places), memory_->comm().rank(), other.text(names_, places), rank,
        places ? ", on the same buffers and allocations, which are numbered from 0 in the order of "
                 "their creation"
               : "");
}

std::string DeviceCallMatch::compare(Peer &peer) const {
    const DeviceCallBoard mine = own_board(), its = board(peer.rank);
    const std::uint64_t made = std::min(calls_, its.calls());
    // The ring of this rank does not have earlier calls.
    if (calls_ > DeviceCallBoard::ring_calls)
        peer.compared = std::max(peer.compared, calls_ - DeviceCallBoard::ring_calls);
    while (peer.compared < made) {
        const std::uint64_t number = ++peer.compared;
        // One of the ranks may be so far ahead that it has overwritten the call.
        const auto here = mine.read(number), there = its.read(number);
        if (!here || !there) continue;
        if (*here != *there) return difference(number, *here, peer.rank, *there);
        if (here->kind == DeviceCall::Kind::all_to_all_v)
            if (std::string why = compare_counts(number, *here, peer); !why.empty()) return why;
    }
    return {};
}

std::string DeviceCallMatch::compare_counts(std::uint64_t number, const DeviceCall &call,
                                            const Peer &peer) const {
    const auto here = own_board().read_pair(number, peer.number);
    const auto there = board(peer.rank).read_pair(number, own_);
    return here && there ? counts_difference(number, call, *here, peer.rank, *there) : "";
}

std::string DeviceCallMatch::counts_difference(std::uint64_t number, const DeviceCall &call,
                                               const ExchangePair &here, int other,
                                               const ExchangePair &there) const {
    if (here.sent == there.received && here.received == there.sent) return {};
    const bool sends = here.sent != there.received;
    const int rank = memory_->comm().rank();
    return fmt::format(
        "call {} on the device communicator, {}: rank {} sends {} elements to rank {}, which "
        "expects {}; the counts of two ranks for one another must be the same",
        number, call.text(names_), sends ? rank : other, sends ? here.sent : there.sent,
        sends ? other : rank, sends ? there.received : here.received);
}

std::string DeviceCallMatch::compare_all() {
    for (Peer &peer : peers_)
        if (std::string why = compare(peer); !why.empty()) return why;
    return compare_notes();
}

std::string DeviceCallMatch::compare_notes() {
    if (!notes_.any() && unexpected_.empty()) return {};
    for (DeviceCallNotes::Call &call : notes_.take())
        if (unexpected_.size() < max_unexpected) unexpected_.push_back(std::move(call));
    const DeviceCallBoard mine = own_board();
    std::string why;
    std::erase_if(unexpected_, [&](const DeviceCallNotes::Call &its) {
        if (its.number > calls_) return false;
        const auto here = mine.read(its.number);
        if (!here || !why.empty()) return true;
        if (*here != its.call) why = difference(its.number, *here, its.rank, its.call);
        else if (const auto pair = exchanges_.pair(its.number, its.rank); pair && its.pair)
            why = counts_difference(its.number, *here, *pair, its.rank, *its.pair);
        return true;
    });
    return why;
}

void DeviceCallMatch::send_to_nodes() const {
    if (!notes_.any_neighbours()) return;
    const int rank = memory_->comm().rank();
    const DeviceCallBoard mine = own_board();
    std::vector<DeviceCallNotes::Call> last;
    for (std::uint64_t number =
             calls_ < DeviceCallNotes::max_calls ? 1 : calls_ - DeviceCallNotes::max_calls + 1;
         number <= calls_; ++number)
        if (const auto call = mine.read(number)) last.push_back({rank, number, *call, {}});
    notes_.send(last);
}

void DeviceCallMatch::send_counts_to_nodes() const {
    const int ranks = memory_->comm().ranks(), rank = memory_->comm().rank();
    if (!notes_.connected() || ranks - static_cast<int>(members_.size()) > max_count_notes) return;
    const DeviceCallBoard mine = own_board();
    for (int other = 0; other < ranks; ++other) {
        if (std::ranges::find(members_, other) != members_.end()) continue;
        std::vector<DeviceCallNotes::Call> last;
        for (const std::uint64_t number : exchanges_.numbers())
            if (const auto pair = exchanges_.pair(number, other); number != 0 && pair)
                if (const auto call = mine.read(number))
                    last.push_back({rank, number, *call, pair});
        notes_.send_to(other, last);
    }
}

std::string DeviceCallMatch::last_text() const {
    const auto call = own_board().read(calls_);
    return fmt::format("{}call {} on the device communicator",
                       call ? call->text(names_) + ", " : "", calls_);
}

void DeviceCallMatch::set_waiting(bool waiting) noexcept {
    own_board().set_waiting(waiting);
}

std::string DeviceCallMatch::late() const {
    std::vector<int> ranks;
    std::uint64_t first = calls_;  // call that one of them has not made
    for (const Peer &peer : peers_) {
        const std::uint64_t made = board(peer.rank).calls();
        if (made >= calls_) continue;
        ranks.push_back(peer.rank);
        first = std::min(first, made + 1);
    }
    if (ranks.empty()) return {};
    const auto call = own_board().read(first);
    return fmt::format("{} {} not made call {} on the device communicator{}", on_this_node(ranks),
                       ranks.size() == 1 ? "has" : "have", first,
                       call ? ", which is " + call->text(names_) : "");
}

std::string DeviceCallMatch::behind() const {
    if (peers_.empty()) return {};
    if (std::string text = late(); !text.empty()) return text;
    std::vector<int> elsewhere;
    std::string ahead;
    for (const Peer &peer : peers_) {
        const DeviceCallBoard its = board(peer.rank);
        if (its.calls() > calls_) {
            const auto next = its.read(calls_ + 1);
            ahead = fmt::format("; rank {} of this node has gone on to call {}{}", peer.rank,
                                calls_ + 1, next ? ", which is " + next->text(names_) : "");
        } else if (!its.waits()) elsewhere.push_back(peer.rank);
    }
    std::string text =
        "; the ranks of this node have made the same calls so far: see whether they have launched "
        "the same graphs, and used several device communicators in the same order";
    if (!ahead.empty()) text += ahead;
    if (!elsewhere.empty())
        text += fmt::format("{} {} not wait for {} in vescomm", on_this_node(elsewhere),
                            elsewhere.size() == 1 ? "does" : "do",
                            elsewhere.size() == 1 ? "its device" : "their devices");
    return text;
}

}  // namespace vescomm::internal
