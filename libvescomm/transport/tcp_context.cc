// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_context.h"

#include <utility>

namespace vescomm::internal {

TcpContext::TcpContext(std::uint32_t id, int rank, const std::vector<int> &peers, Failure &failure,
                       std::function<void()> on_signal)
    : id(id),
      rank(rank),
      failure(failure),
      on_signal(std::move(on_signal)),
      memories("TCP", rank, peers.size()),
      inbox(rank, peers.size(), failure, memories),
      queues(peers.size()),
      left(peers.size()),
      ranks_(peers) {
    for (TcpQueue &queue : queues) queue.context = this;
}

void TcpContext::lose(int process, bool busy, const std::string &why) noexcept {
    const int peer = rank_of(process);
    if (peer < 0) return;
    const auto at = static_cast<std::size_t>(peer);
    busy = busy || queues[at].first != nullptr || queues[at].open != nullptr;
    if (left[at] && !busy) return;
    try {
        failure.set(VESCOMM_ERROR_PEER_FAILED,
                    "rank " + std::to_string(rank) + " lost the connection to rank " +
                        std::to_string(peer) + " over TCP: " + why +
                        (left[at] ? "; that rank has left while puts from or to it were under way"
                                  : "; that process ended or its network did, see its output"));
    } catch (...) {
        failure.set(VESCOMM_ERROR_PEER_FAILED, {});
    }
}

}  // namespace vescomm::internal
