// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/memory.h"
#include "gpu/device_call.h"
#include "gpu/device_call_board.h"
#include "gpu/device_call_notes.h"
#include "gpu/last_exchanges.h"

namespace vescomm::internal {

// Compares the calls of the ranks of a device communicator: NCCL does not, and different calls make
// it hang or give wrong results. Every rank writes its last calls into memory that the ranks of its
// node map, and sends them to other nodes from time to time and while it waits long. Decision:
// docs/design/0040-device-calls-are-compared.md.
//
// The functions that compare return the sentence of a mismatch; empty: there is none.
//
// Threads: one at a time.
class DeviceCallMatch {
public:
    // Collective, blocking.
    explicit DeviceCallMatch(const std::shared_ptr<Communicator> &comm);

    // This rank makes its next call. Compares what is new with the next rank of the node, and with
    // calls that have come from other nodes. Without memory nothing is compared.
    // `counts`: of an exchange; they are compared with those of all ranks of the node.
    std::string add(const DeviceCall &call, const ExchangeCounts &counts = {}) noexcept;
    // This rank frees the device communicator after its vescomm_comm_t: its last call, which is
    // compared with nothing. The other ranks of the node see that it has come.
    void leave() noexcept;
    // Compares with all ranks of the node, and with calls that have come from other nodes.
    std::string compare_all();
    // This rank has waited long, or has failed: sends its last calls to other nodes. add() does so
    // from time to time.
    void send_to_nodes() const;
    // This rank has waited for seconds, or has failed: sends the counts of its last exchanges, each
    // to the rank that they are for. With very many ranks it sends nothing.
    void send_counts_to_nodes() const;
    // True: calls have come from other nodes.
    bool any_notes() const { return notes_.any(); }
    // True: there are other nodes, and calls pass between them.
    bool between_nodes() const { return notes_.connected(); }
    // The name of a buffer, for sentences.
    void name_buffer(std::uint64_t number, const std::string &name) noexcept;
    // "all_reduce of 10 f32 (sum), call 4 on the device communicator": the last call of this rank.
    std::string last_text() const;
    // This rank begins or ends a wait for its device.
    void set_waiting(bool waiting) noexcept;
    // After a timeout: what other ranks of the node have not done, as the end of a sentence. Empty:
    // there are no other ranks.
    std::string behind() const;
    // The part of it about calls that other ranks have not made; empty: there are none.
    std::string late() const;

private:
    struct Peer {
        int rank = 0;
        std::size_t number = 0;  // among the ranks of this node
        std::uint64_t compared = 0;  // calls
    };

    DeviceCallBoard board(int rank) const;
    DeviceCallBoard own_board() const;
    std::string compare(Peer &peer) const;
    // Compares the counts of an exchange that both ranks have made.
    std::string compare_counts(std::uint64_t number, const DeviceCall &call,
                               const Peer &peer) const;
    std::string counts_difference(std::uint64_t number, const DeviceCall &call,
                                  const ExchangePair &here, int rank,
                                  const ExchangePair &there) const;
    std::string compare_notes();
    std::string difference(std::uint64_t number, const DeviceCall &mine, int rank,
                           const DeviceCall &other) const;

    const std::span<const int> members_;  // the ranks of this node
    const std::size_t own_;  // this rank among them
    const std::size_t max_members_;  // of any node
    const std::shared_ptr<Memory> memory_;
    std::vector<Peer> peers_;  // the other ranks of this node, from the next one on
    std::uint64_t calls_ = 0;  // number of calls that this rank has made
    BufferNames names_;
    LastExchanges exchanges_;  // nothing without other nodes
    DeviceCallNotes notes_;
    // Calls that came from other nodes before this rank has made its own.
    std::vector<DeviceCallNotes::Call> unexpected_;
};

}  // namespace vescomm::internal
