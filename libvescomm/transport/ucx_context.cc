// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_context.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "transport/ucx_endpoint.h"

namespace vescomm::internal {
namespace {

// Sets the failure; without a sentence if there is no memory for it.
template <typename Sentence>
void set_failure(Failure &failure, vescomm_status_t status, Sentence sentence) noexcept {
    if (failure.broken()) return;
    try {
        failure.set(status, sentence());
    } catch (...) {
        failure.set(status, {});
    }
}

}  // namespace

UcxContext::UcxContext(UcxShared &shared, std::uint32_t id, int rank, const std::vector<int> &peers,
                       Failure &failure, std::function<void()> on_signal)
    : id(id),
      rank(rank),
      failure(failure),
      on_signal(std::move(on_signal)),
      memories(shared.ucx, shared.worker, rank, peers.size()),
      inbox(shared.ucx, shared.worker, *this, peers.size()),
      queues(peers.size()),
      left(peers.size()),
      shared_(shared),
      ranks_(peers) {
    for (std::size_t peer = 0; peer < peers.size(); ++peer)
        if (peers[peer] >= 0)
            queues[peer] = std::make_unique<UcxQueue>(shared, *this, *shared.endpoint(peers[peer]));
}

bool UcxContext::busy() const noexcept {
    for (std::size_t peer = 0; peer < queues.size(); ++peer)
        if (busy(static_cast<int>(peer))) return true;
    return false;
}

bool UcxContext::busy(int peer) const noexcept {
    const auto &queue = queues[static_cast<std::size_t>(peer)];
    return queue && (!queue->idle() || inbox.writing(peer));
}

void UcxContext::take_goodbye(int peer) noexcept {
    left[static_cast<std::size_t>(peer)] = true;
    inbox.give_up(peer);
}

void UcxContext::lose(const UcxEndpoint &endpoint) noexcept {
    const int peer = rank_of(endpoint.process());
    if (peer < 0) return;
    const auto at = static_cast<std::size_t>(peer);
    const bool busy = queues[at]->busy() || inbox.receiving(peer);
    queues[at]->drop();
    if (left[at] && !busy) return;
    set_failure(failure, VESCOMM_ERROR_PEER_FAILED, [&] {
        return endpoint.why(rank, peer) +
               (left[at] ? "; that rank has left while puts from or to it were under way"
                         : "; that process ended, its network did, or it has closed the "
                           "connection, see its output");
    });
    note();
}

void UcxContext::lose(const UcxMessage &message, const char *reason) noexcept {
    set_failure(failure, VESCOMM_ERROR_PEER_FAILED, [&] {
        return "rank " + std::to_string(rank) + " did not receive all of the " +
               std::to_string(message.bytes) + " bytes that rank " +
               std::to_string(rank_of(static_cast<int>(message.from))) + " put into memory " +
               std::to_string(message.memory) + " over UCX: " + reason +
               "; that process ended or its network did, see its output";
    });
    note();
}

void UcxContext::refuse(const UcxMessage &message, const char *why) noexcept {
    set_failure(failure, VESCOMM_ERROR_PEER_FAILED, [&] {
        const int peer = rank_of(static_cast<int>(message.from));
        return "rank " + std::to_string(rank) +
               " received a message over UCX that cannot be right: " + why +
               (peer < 0 ? std::string()
                         : " (it says it is number " + std::to_string(message.number) +
                               " of rank " + std::to_string(peer) + ")") +
               "; all ranks must run the same version of vescomm, and no other program may use its "
               "ports";
    });
    note();
}

void UcxContext::run_out() noexcept {
    set_failure(failure, VESCOMM_ERROR_OUT_OF_MEMORY, [&] {
        return "rank " + std::to_string(rank) + " has no memory left for messages over UCX";
    });
}

}  // namespace vescomm::internal
