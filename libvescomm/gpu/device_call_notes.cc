// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_call_notes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "comm/split.h"

namespace vescomm::internal {

namespace {

// A call in a note: its number, and its words.
using Packed = std::array<std::uint64_t, 1 + std::tuple_size_v<DeviceCall::Words>>;

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
    std::string bytes;
    for (const Call &call : calls) {
        Packed packed{call.number};
        std::ranges::copy(call.call.words(), packed.begin() + 1);
        bytes.append(reinterpret_cast<const char *>(packed.data()), sizeof packed);
    }
    if (bytes.empty()) return;
    for (const int neighbour : neighbours_) control_->send_note(neighbour, bytes);
}

std::vector<DeviceCallNotes::Call> DeviceCallNotes::take() {
    std::vector<Call> calls;
    if (!any()) return calls;
    for (const auto &[rank, bytes] : control_->take_notes())
        for (std::size_t at = 0; at + sizeof(Packed) <= bytes.size(); at += sizeof(Packed)) {
            Packed packed;
            std::memcpy(packed.data(), bytes.data() + at, sizeof packed);
            DeviceCall::Words words;
            std::copy(packed.begin() + 1, packed.end(), words.begin());
            if (const auto call = DeviceCall::from_words(words))
                calls.push_back({rank, packed[0], *call});
        }
    return calls;
}

}  // namespace vescomm::internal
