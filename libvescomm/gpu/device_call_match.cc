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

    // No store of a word moves before that of 0, nor behind that of the number.
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

// Calls of neighbours that are kept until this rank has made them.
constexpr std::size_t max_early = 256;

}  // namespace

// Memory begins with zeros, which are those of no calls.
struct DeviceCallMatch::Board {
    Word calls;
    std::array<Entry, kept> ring;

    Entry &entry(std::uint64_t call) { return ring[call % kept]; }
};

DeviceCallMatch::DeviceCallMatch(const std::shared_ptr<Communicator> &comm)
    : memory_(Memory::create(comm, sizeof(Board), VESCOMM_HOST, VESCOMM_PER_RANK)),
      notes_(*comm, memory_->id()) {
    for (const int rank : comm->nodes().members(comm->nodes().node_of(comm->rank())))
        if (rank != comm->rank()) peers_.push_back({.rank = rank});
}

DeviceCallMatch::Board &DeviceCallMatch::board(int rank) const {
    return *std::launder(reinterpret_cast<Board *>(memory_->mapping()->base(rank)));
}

void DeviceCallMatch::add(const DeviceCall &call) noexcept {
    Board &mine = board(memory_->comm().rank());
    ++calls_;
    mine.entry(calls_).write(calls_, call);
    mine.calls.store(calls_, std::memory_order_release);
}

std::string DeviceCallMatch::difference(std::uint64_t number, const DeviceCall &mine, int rank,
                                        const DeviceCall &other) const {
    return fmt::format(
        "call {} on the device communicator is {} on rank {} and {} on rank {}; every rank must "
        "make the same calls in the same order",
        number, mine.text(), memory_->comm().rank(), other.text(), rank);
}

std::string DeviceCallMatch::compare(Peer &peer) const {
    Board &mine = board(memory_->comm().rank()), &its = board(peer.rank);
    const std::uint64_t made = std::min(calls_, its.calls.load(std::memory_order_acquire));
    while (peer.compared < made) {
        const std::uint64_t number = ++peer.compared;
        // One of the ranks may be so far ahead that it has overwritten the call.
        const auto here = mine.entry(number).read(number), there = its.entry(number).read(number);
        if (here && there && *here != *there) return difference(number, *here, peer.rank, *there);
    }
    return {};
}

std::string DeviceCallMatch::compare_next() {
    if (peers_.empty()) return {};
    next_ = (next_ + 1) % peers_.size();
    return compare(peers_[next_]);
}

std::string DeviceCallMatch::compare_all() {
    for (Peer &peer : peers_)
        if (std::string why = compare(peer); !why.empty()) return why;
    return compare_notes();
}

std::string DeviceCallMatch::compare_notes() {
    for (DeviceCallNotes::Call &call : notes_.take())
        if (early_.size() < max_early) early_.push_back(std::move(call));
    Board &mine = board(memory_->comm().rank());
    std::string why;
    std::erase_if(early_, [&](const DeviceCallNotes::Call &its) {
        if (its.number > calls_) return false;
        const auto here = mine.entry(its.number).read(its.number);
        if (here && *here != its.call && why.empty())
            why = difference(its.number, *here, its.rank, its.call);
        return true;
    });
    return why;
}

void DeviceCallMatch::send_to_nodes() const {
    if (!between_nodes()) return;
    const int rank = memory_->comm().rank();
    std::vector<DeviceCallNotes::Call> last;
    for (std::uint64_t number = calls_ < kept ? 1 : calls_ - kept + 1; number <= calls_; ++number)
        if (const auto call = board(rank).entry(number).read(number))
            last.push_back({rank, number, *call});
    notes_.send(last);
}

std::string DeviceCallMatch::behind() const {
    std::vector<int> ranks;
    for (const Peer &peer : peers_)
        if (board(peer.rank).calls.load(std::memory_order_acquire) < calls_)
            ranks.push_back(peer.rank);
    if (ranks.empty()) return {};
    const bool one = ranks.size() == 1;
    return fmt::format("{} {} of this node {} not made call {} on the device communicator",
                       one ? "rank" : "ranks", fmt::join(ranks, ", "), one ? "has" : "have",
                       calls_);
}

}  // namespace vescomm::internal
