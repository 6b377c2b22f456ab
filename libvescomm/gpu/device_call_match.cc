// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_call_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <optional>
#include <utility>

namespace vescomm::internal {

namespace {

using Word = std::atomic<std::uint64_t>;

// A call in a ring: written by its rank, read by the others at any time.
struct Entry {
    Word number;  // of the call, from 1; 0: it is being written
    std::array<Word, std::tuple_size_v<DeviceCall::Words>> words;

    // A reader that sees a word of the new call sees number 0 or a later number afterwards.
    void write(std::uint64_t which, const DeviceCall &call) noexcept {
        const DeviceCall::Words values = call.words();
        number.store(0, std::memory_order_relaxed);
        for (std::size_t i = 0; i < words.size(); ++i)
            words[i].store(values[i], std::memory_order_release);
        number.store(which, std::memory_order_release);
    }

    // Nothing if the entry does not hold this call.
    std::optional<DeviceCall> read(std::uint64_t which) const noexcept {
        DeviceCall::Words values;
        if (number.load(std::memory_order_acquire) != which) return {};
        for (std::size_t i = 0; i < words.size(); ++i)
            values[i] = words[i].load(std::memory_order_acquire);
        if (number.load(std::memory_order_relaxed) != which) return {};
        return DeviceCall::from_words(values);
    }
};

// Calls of neighbours that wait until this rank has made its own.
constexpr std::size_t max_unexpected = 256;

}  // namespace

// Memory begins with zeros, which are those of no calls.
struct DeviceCallMatch::Board {
    Word calls;
    Word waiting;  // 1: in a wait for its device
    std::array<Entry, ring_calls> ring;

    Entry &entry(std::uint64_t call) { return ring[call % ring_calls]; }
};

DeviceCallMatch::DeviceCallMatch(const std::shared_ptr<Communicator> &comm)
    : memory_(Memory::create(comm, sizeof(Board), VESCOMM_HOST, VESCOMM_PER_RANK)),
      notes_(*comm, memory_->id()) {
    const auto &members = comm->nodes().members(comm->nodes().node_of(comm->rank()));
    const auto own =
        static_cast<std::size_t>(std::ranges::find(members, comm->rank()) - members.begin());
    for (std::size_t k = 1; k < members.size(); ++k)
        peers_.push_back({.rank = members[(own + k) % members.size()]});
}

DeviceCallMatch::Board &DeviceCallMatch::board(int rank) const {
    return *std::launder(reinterpret_cast<Board *>(memory_->mapping()->base(rank)));
}

std::string DeviceCallMatch::add(const DeviceCall &call) noexcept {
    Board &mine = board(memory_->comm().rank());
    ++calls_;
    mine.entry(calls_).write(calls_, call);
    mine.calls.store(calls_, std::memory_order_release);
    try {
        if (calls_ % DeviceCallNotes::max_calls == 0) send_to_nodes();
        // If two ranks of the node differ, so do two that follow one another.
        if (!peers_.empty())
            if (std::string why = compare(peers_.front()); !why.empty()) return why;
        return compare_notes();
    } catch (const std::bad_alloc &) {
        return {};
    }
}

std::string DeviceCallMatch::difference(std::uint64_t number, const DeviceCall &mine, int rank,
                                        const DeviceCall &other) const {
    const bool places = mine.data != other.data || mine.source != other.source;
    return fmt::format(
        "call {} on the device communicator is {} on rank {} and {} on rank {}; every rank must "
        "make the same calls in the same order{}",
        number, mine.text(places), memory_->comm().rank(), other.text(places), rank,
        places ? ", on the same buffers and allocations, which are numbered from 0 in the order of "
                 "their creation"
               : "");
}

std::string DeviceCallMatch::compare(Peer &peer) const {
    Board &mine = board(memory_->comm().rank()), &its = board(peer.rank);
    const std::uint64_t made = std::min(calls_, its.calls.load(std::memory_order_acquire));
    // The ring of this rank does not have earlier calls.
    if (calls_ > ring_calls) peer.compared = std::max(peer.compared, calls_ - ring_calls);
    while (peer.compared < made) {
        const std::uint64_t number = ++peer.compared;
        // One of the ranks may be so far ahead that it has overwritten the call.
        const auto here = mine.entry(number).read(number), there = its.entry(number).read(number);
        if (here && there && *here != *there) return difference(number, *here, peer.rank, *there);
    }
    return {};
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
    Board &mine = board(memory_->comm().rank());
    std::string why;
    std::erase_if(unexpected_, [&](const DeviceCallNotes::Call &its) {
        if (its.number > calls_) return false;
        const auto here = mine.entry(its.number).read(its.number);
        if (here && *here != its.call && why.empty())
            why = difference(its.number, *here, its.rank, its.call);
        return true;
    });
    return why;
}

void DeviceCallMatch::send_to_nodes() const {
    if (!notes_.any_neighbours()) return;
    const int rank = memory_->comm().rank();
    std::vector<DeviceCallNotes::Call> last;
    for (std::uint64_t number =
             calls_ < DeviceCallNotes::max_calls ? 1 : calls_ - DeviceCallNotes::max_calls + 1;
         number <= calls_; ++number)
        if (const auto call = board(rank).entry(number).read(number))
            last.push_back({rank, number, *call});
    notes_.send(last);
}

std::string DeviceCallMatch::last_text() const {
    const auto call = board(memory_->comm().rank()).entry(calls_).read(calls_);
    return fmt::format("{}call {} on the device communicator", call ? call->text() + ", " : "",
                       calls_);
}

void DeviceCallMatch::set_waiting(bool waiting) noexcept {
    board(memory_->comm().rank()).waiting.store(waiting ? 1 : 0, std::memory_order_release);
}

std::string DeviceCallMatch::behind() const {
    if (peers_.empty()) return {};
    std::vector<int> late, elsewhere;
    std::uint64_t first = calls_;  // call that one of them has not made
    std::string ahead;
    for (const Peer &peer : peers_) {
        const Board &its = board(peer.rank);
        if (const auto made = its.calls.load(std::memory_order_acquire); made < calls_) {
            late.push_back(peer.rank);
            first = std::min(first, made + 1);
        } else if (made > calls_) {
            const auto next = board(peer.rank).entry(calls_ + 1).read(calls_ + 1);
            ahead = fmt::format("; rank {} of this node has gone on to call {}{}", peer.rank,
                                calls_ + 1, next ? ", which is " + next->text() : "");
        } else if (its.waiting.load(std::memory_order_acquire) == 0) elsewhere.push_back(peer.rank);
    }
    const auto name = [](std::vector<int> &ranks) {
        std::ranges::sort(ranks);
        return fmt::format("; {} {} of this node", ranks.size() == 1 ? "rank" : "ranks",
                           fmt::join(ranks, ", "));
    };
    if (!late.empty()) {
        const auto call = board(memory_->comm().rank()).entry(first).read(first);
        return fmt::format("{} {} not made call {} on the device communicator{}", name(late),
                           late.size() == 1 ? "has" : "have", first,
                           call ? ", which is " + call->text() : "");
    }
    std::string text =
        "; the ranks of this node have made the same calls so far: see whether they have launched "
        "the same graphs, and used several device communicators in the same order";
    if (!ahead.empty()) text += ahead;
    if (!elsewhere.empty())
        text += fmt::format("{} {} not wait for {} in vescomm", name(elsewhere),
                            elsewhere.size() == 1 ? "does" : "do",
                            elsewhere.size() == 1 ? "its device" : "their devices");
    return text;
}

}  // namespace vescomm::internal
