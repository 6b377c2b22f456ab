// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_call_notes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "comm/split.h"

namespace vescomm::internal {

namespace {

// A call in a note: its number, and its words.
using Packed = std::array<std::uint64_t, 1 + std::tuple_size_v<DeviceCall::Words>>;

// Flag of the number: the call has its counts with the receiver, where other calls have elements
// and a digest.
constexpr std::uint64_t has_pair = std::uint64_t{1} << 63;

Packed packed(const DeviceCallNotes::Call &its) {
    DeviceCall call = its.call;
    if (its.pair) {
        call.elements = static_cast<std::uint64_t>(its.pair->sent);
        call.digest = static_cast<std::uint64_t>(its.pair->received);
    }
    Packed words{its.number | (its.pair ? has_pair : 0)};
    std::ranges::copy(call.words(), words.begin() + 1);
    return words;
}

// Nothing if the words are those of no call.
std::optional<DeviceCallNotes::Call> unpacked(int rank, const Packed &packed) {
    DeviceCall::Words words;
    std::copy(packed.begin() + 1, packed.end(), words.begin());
    auto call = DeviceCall::from_words(words);
    if (!call) return {};
    DeviceCallNotes::Call its{rank, packed[0] & ~has_pair, *call, {}};
    if ((packed[0] & has_pair) != 0) {
        its.pair = ExchangePair{static_cast<std::int64_t>(call->elements),
                                static_cast<std::int64_t>(call->digest)};
        its.call.elements = its.call.digest = 0;
    }
    return its;
}

std::string bytes_of(const std::vector<DeviceCallNotes::Call> &calls) {
    std::string bytes;
    for (const DeviceCallNotes::Call &call : calls) {
        const Packed words = packed(call);
        bytes.append(reinterpret_cast<const char *>(words.data()), sizeof words);
    }
    return bytes;
}

}  // namespace

DeviceCallNotes::DeviceCallNotes(Communicator &comm, std::uint64_t number) {
    const int ranks = comm.ranks(), rank = comm.rank();
    const Nodes &nodes = comm.nodes();
    if (nodes.count() == 1) return;
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    try {
        control_ =
            open_subgroup(comm, "device calls " + std::to_string(number), all, comm.deadline());
    } catch (const Error &error) {
        if (error.status != VESCOMM_ERROR_UNSUPPORTED) throw;
        return;
    }
    for (const int other : {(rank + ranks - 1) % ranks, (rank + 1) % ranks})
        if (nodes.node_of(other) != nodes.node_of(rank) &&
            std::ranges::find(neighbours_, other) == neighbours_.end())
            neighbours_.push_back(other);
}

DeviceCallNotes::~DeviceCallNotes() {
    if (control_) control_->leave(Deadline::after(0));
}

void DeviceCallNotes::send(const std::vector<Call> &calls) const {
    if (calls.empty()) return;
    for (const int neighbour : neighbours_) control_->send_note(neighbour, bytes_of(calls));
}

void DeviceCallNotes::send_to(int rank, const std::vector<Call> &calls) const {
    if (!calls.empty()) control_->send_note(rank, bytes_of(calls));
}

std::vector<DeviceCallNotes::Call> DeviceCallNotes::take() {
    std::vector<Call> calls;
    if (!any()) return calls;
    for (const auto &[rank, bytes] : control_->take_notes())
        for (std::size_t at = 0; at + sizeof(Packed) <= bytes.size(); at += sizeof(Packed)) {
            Packed words;
            std::memcpy(words.data(), bytes.data() + at, sizeof words);
            if (auto call = unpacked(rank, words)) calls.push_back(std::move(*call));
        }
    return calls;
}

}  // namespace vescomm::internal
