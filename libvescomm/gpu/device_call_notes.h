// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "gpu/device_call.h"

namespace vescomm::internal {

// Passes calls on device memory between nodes, over the control plane. A rank sends them to its two
// neighbours in the ring of ranks, if these are on other nodes: if two ranks differ and all have
// made the call, two neighbours differ. Counts of exchanges differ for each pair of ranks, and go
// to the other one of the pair.
//
// Threads: one at a time.
class DeviceCallNotes {
public:
    struct Call {
        int rank = 0;  // the sender
        std::uint64_t number = 0;
        DeviceCall call;
        std::optional<ExchangePair> pair{};  // of an exchange: its counts with the receiver
    };

    // Collective, blocking. `number`: the same on all ranks, and of no other object of `comm`. A
    // control plane without subgroups passes nothing. Throws what open_subgroup() throws.
    DeviceCallNotes(Communicator &comm, std::uint64_t number);
    ~DeviceCallNotes();
    DeviceCallNotes(const DeviceCallNotes &) = delete;
    DeviceCallNotes &operator=(const DeviceCallNotes &) = delete;

    // True: there are other nodes, and a control plane that passes calls to them.
    bool connected() const { return control_ != nullptr; }
    bool any_neighbours() const { return !neighbours_.empty(); }
    // Sends calls of this rank to its neighbours, at most max_calls.
    void send(const std::vector<Call> &calls) const;
    // The same, to one rank.
    void send_to(int rank, const std::vector<Call> &calls) const;
    // True: calls have arrived.
    bool any() const { return control_ != nullptr && control_->has_notes(); }
    // Calls of other nodes that have arrived.
    std::vector<Call> take();

    // Number of calls in a note.
    static constexpr std::size_t max_calls = 32;

private:
    std::vector<int> neighbours_;
    std::unique_ptr<Control> control_;  // nullptr: nothing is passed
};

}  // namespace vescomm::internal
