// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/chunks.h"
#include "schedule/forwarded.h"
#include "schedule/problem.h"

namespace vescomm::internal {

// The chunks of blocks, and their chunk slots in the staging buffers. The size of chunks and the
// number of slots are the same on every rank.
class BlockChunks {
public:
    // `staging`: the part of the staging buffers that the slots may use. `max_forwarded`: a block
    // for which is_forwarded() is true has no chunks.
    BlockChunks(const ArrayProblem &problem, Extent staging, std::int64_t max_forwarded);

    // True if a sender has one block for all receivers.
    bool shared() const { return shared_; }
    // Elements of a chunk.
    std::int64_t size() const { return size_; }
    // Slots of each block.
    std::int64_t slots() const { return slots_; }
    // True if the block passes through the pair area that the sender has for the receiver.
    bool in_pair_area(int from, int to) const {
        return has_pair_areas() && from != to && nodes_.together(from, to) &&
               problem_.block(from, to) <= problem_.pairs.count;
    }
    bool has_pair_areas() const {
        return problem_.collective == Collective::all_to_all_v && problem_.pairs.count > 0;
    }
    Place pair_area(int from, int to) const {
        return {from, Region::staging,
                problem_.pairs.offset(nodes_.local_rank(to), problem_.block(from, to))};
    }
    // Number of chunks of a block; 0 if it is forwarded, or passes through a pair area.
    std::int64_t count(int from, int to) const {
        if (in_pair_area(from, to)) return 0;
        if (max_forwarded_ > 0 && is_forwarded(problem_, from, to, max_forwarded_)) return 0;
        return chunks(from, to).count();
    }
    // Elements of chunk k.
    std::int64_t elements(int from, int to, std::int64_t k) const {
        return chunks(from, to).elements(k);
    }
    Place given(int from, int to, std::int64_t k) const {
        return later(problem_.given(from, to), k * size_);
    }
    Place taken(int from, int to, std::int64_t k) const {
        return later(problem_.taken(from, to), k * size_);
    }
    // The slot of chunk k in the staging buffer of the sender, for a reader of its node.
    Place slot_at_sender(int from, int to, std::int64_t k) const {
        Place place = slot(from, blocks_ == 1 ? 0 : nodes_.local_rank(to), k);
        // A rank does not know where the blocks of an all_to_all_v are in the array of another
        // rank.
        place.registered =
            problem_.collective == Collective::all_to_all_v ? k * size_ : given(from, to, k).offset;
        return place;
    }
    // The slot of chunk k in the staging buffer of `at`, for the n-th sender of other nodes.
    Place slot_at_receiver(int at, std::int64_t n, std::int64_t k) const {
        return slot(at, blocks_ + n, k);
    }
    // The number of `from` among the senders of other nodes to `at`: in an all_gather_v among
    // rail_peers(at). Cost there: O(ranks) for the first node of each size.
    std::int64_t sender_number(int at, int from);

private:
    // Number of ranks below `from` with the same local rank modulo `size`.
    std::int64_t before(int from, int size);
    struct Before {
        int from, size;
        std::int64_t ranks;
    };

    Chunks chunks(int from, int to) const { return {problem_.block(from, to), size_, slots_}; }
    Place slot(int at, std::int64_t n, std::int64_t k) const {
        return {at, Region::staging, staging_.begin + (slots_ * n + k % slots_) * size_};
    }

    const ArrayProblem &problem_;
    const Nodes &nodes_;
    const Extent staging_;
    const std::int64_t max_forwarded_;
    bool shared_;
    std::int64_t blocks_ = 1;  // with slots at their sender
    std::int64_t size_ = 0;  // elements of a chunk
    std::int64_t slots_ = 2;  // of each block
    std::vector<Before> before_;  // results of before(), one for each size of nodes
};

}  // namespace vescomm::internal
