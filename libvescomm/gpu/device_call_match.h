// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/memory.h"
#include "gpu/device_call.h"
#include "gpu/device_call_notes.h"

namespace vescomm::internal {

// Compares the calls of the ranks of a device communicator: NCCL does not, and different calls make
// it hang or give wrong results. Every rank writes its last calls into memory that the ranks of its
// node map, and sends them to other nodes while it waits long. Decision:
// docs/design/0040-device-calls-are-compared.md.
//
// The functions that compare return the sentence of a mismatch; empty: there is none.
//
// Threads: one at a time.
class DeviceCallMatch {
public:
    // Collective, blocking.
    explicit DeviceCallMatch(const std::shared_ptr<Communicator> &comm);

    // This rank makes its next call.
    void add(const DeviceCall &call) noexcept;
    // Compares what is new with one other rank of the node, with another one each time.
    std::string compare_next();
    // Compares with all ranks of the node, and with calls that have come from other nodes.
    std::string compare_all();
    // This rank has waited long, or has failed: sends its calls to other nodes.
    void send_to_nodes() const;
    // False if no calls come from other nodes.
    bool between_nodes() const { return notes_.connected(); }
    // The sentence that names the ranks of the node that have made fewer calls than this one;
    // empty: there are none.
    std::string behind() const;

    // Calls that a slower rank can still compare.
    static constexpr std::uint64_t kept = 64;

private:
    struct Board;
    struct Peer {
        int rank = 0;
        std::uint64_t compared = 0;  // calls
    };

    Board &board(int rank) const;
    std::string compare(Peer &peer) const;
    std::string compare_notes();
    std::string difference(std::uint64_t number, const DeviceCall &mine, int rank,
                           const DeviceCall &other) const;

    const std::shared_ptr<Memory> memory_;
    std::vector<Peer> peers_;  // the other ranks of this node
    std::size_t next_ = 0;
    std::uint64_t calls_ = 0;  // of this rank
    DeviceCallNotes notes_;
    std::vector<DeviceCallNotes::Call> early_;  // of other nodes, which this rank has not made yet
};

}  // namespace vescomm::internal
