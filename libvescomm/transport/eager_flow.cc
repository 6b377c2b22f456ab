// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation. Allocates only while budgets are used up.
#include "transport/eager_flow.h"

namespace vescomm::internal {

bool EagerFlow::request(int peer, SignalName credit, std::uint64_t value) noexcept {
    ReceivedSignals &requests = at(peer).requests;
    if (requests.read(credit) >= value) return false;
    // Without memory for the record the request is repeated, which does no harm.
    requests.raise(credit, value);
    return true;
}

const char *EagerFlow::acknowledge(int peer, std::uint64_t total) noexcept {
    Peer &its = at(peer);
    if (total > its.sent) return "it acknowledges more eager bytes than were sent";
    if (total < its.acknowledged.load(std::memory_order_relaxed))
        return "it acknowledges fewer eager bytes than before";
    its.acknowledged.store(total, std::memory_order_relaxed);
    return nullptr;
}

bool EagerFlow::consume(int peer, std::uint64_t charge) noexcept {
    Peer &its = at(peer);
    its.consumed += charge;
    const std::uint64_t budget = eager_budget_bytes.load(std::memory_order_relaxed);
    if (its.consumed - its.reported < budget / 4) return true;
    its.reported = its.consumed;
    return add_answer(
        {.peer = peer, .signal = {}, .value = its.consumed, .kind = PutKind::acknowledgement});
}

bool EagerFlow::take_request(int peer, SignalName credit, std::uint64_t value,
                             std::uint64_t granted) noexcept {
    Peer &its = at(peer);
    its.requested = true;
    if (its.requested_values.read(credit) >= value) return true;  // no sender asks twice
    if (!its.requested_values.raise(credit, value)) return false;
    return granted < value || add_answer({.peer = peer, .signal = credit, .value = granted});
}

bool EagerFlow::grant(int peer, SignalName credit, std::uint64_t before,
                      std::uint64_t value) noexcept {
    // Requests for values up to `before` have been answered.
    if (at(peer).requested_values.read(credit) <= before) return true;
    return add_answer({.peer = peer, .signal = credit, .value = value});
}

bool EagerFlow::add_answer(const Put &answer) noexcept {
    try {
        answers_.push_back(answer);
    } catch (...) {
        return false;
    }
    return true;
}

}  // namespace vescomm::internal
