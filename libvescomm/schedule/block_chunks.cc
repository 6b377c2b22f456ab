// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/block_chunks.h"

#include "schedule/rails.h"

namespace vescomm::internal {

BlockChunks::BlockChunks(const ArrayProblem &problem, Extent staging, std::int64_t max_forwarded)
    : problem_(problem),
      nodes_(problem.nodes),
      staging_(staging),
      max_forwarded_(max_forwarded),
      shared_(problem.collective == Collective::all_gather_v ||
              problem.collective == Collective::broadcast) {
    const bool to_many = problem.collective == Collective::scatter_v ||
                         problem.collective == Collective::all_to_all_v;
    blocks_ = to_many ? nodes_.largest() : 1;
    std::int64_t senders = 0;  // of other nodes, to one rank
    if (nodes_.count() > 1) {
        switch (problem.collective) {
            case Collective::all_gather_v:
                senders = max_rail_peers(nodes_);
                break;
            case Collective::gather_v:
            case Collective::all_to_all_v:
                senders = nodes_.ranks();
                break;
            default:
                senders = 1;
        }
    }
    size_ = staging.count / (2 * (blocks_ + senders));
    if (nodes_.count() > 1) return;
    const ChunkSlots on_node = chunk_slots_on_node(staging.count, blocks_, problem);
    size_ = on_node.size;
    slots_ = on_node.slots;
}

std::int64_t BlockChunks::sender_number(int at, int from) {
    switch (problem_.collective) {
        case Collective::all_gather_v: {
            const auto size = nodes_.members(nodes_.node_of(at)).size();
            return before(from, static_cast<int>(size)) - (at < from ? 1 : 0);
        }
        case Collective::gather_v:
        case Collective::all_to_all_v:
            return from;
        default:
            return 0;
    }
}

std::int64_t BlockChunks::before(int from, int size) {
    for (const Before &known : before_)
        if (known.from == from && known.size == size) return known.ranks;
    Before found{from, size, 0};
    const int place = nodes_.local_rank(from) % size;
    for (int rank = 0; rank < from; ++rank)
        if (nodes_.local_rank(rank) % size == place) ++found.ranks;
    before_.push_back(found);
    return found.ranks;
}

}  // namespace vescomm::internal
