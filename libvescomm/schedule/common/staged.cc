// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/common/staged.h"

#include <algorithm>

#include "schedule/block_chunks.h"
#include "schedule/rails.h"

namespace vescomm::internal::common {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: chunk k of each block of this rank is in its staging buffer
    clear_to_send,  // value k + 1, for a sender on another node: it may put chunk k
    arrived,  // raised by a put: value k + 1 means that chunk k has arrived
    forwarded,  // value i: the first i chunks that this rank holds for its node have arrived
    read,  // value k + 1: this rank has read chunk k of all blocks
};

std::uint32_t count_of(std::int64_t number) {
    return static_cast<std::uint32_t>(number);
}

class Passing {
public:
    Passing(const ArrayProblem &problem, int rank, Extent staging, std::int64_t max_forwarded)
        : problem_(problem),
          nodes_(problem.nodes),
          chunks_(problem, staging, max_forwarded),
          rank_(rank),
          node_(nodes_.node_of(rank)),
          locals_(static_cast<int>(nodes_.members(node_).size())) {
        schedule_.lanes.emplace_back(array());
    }

    Schedule make() {
        if (chunks_.has_pair_areas())
            schedule_.staging =
                std::max(schedule_.staging, problem_.pairs.begin + locals_ * problem_.pairs.stride);
        for (int away = 1; away < locals_; ++away) {
            const int peer = local_peer(away);
            if (chunks_.count(rank_, peer) > 0) readers_.push_back(peer);
            if (chunks_.count(peer, rank_) > 0) writers_.push_back(peer);
        }
        if (chunks_.shared()) {
            for (int away = 0; away < locals_; ++away)
                forwarders_.push_back({local_peer(away), senders_through(local_peer(away)), 0});
        } else if (nodes_.count() > 1) {
            for (int peer = 0; peer < nodes_.ranks(); ++peer)
                if (nodes_.node_of(peer) != node_ && chunks_.count(peer, rank_) > 0)
                    remote_.push_back(peer);
            remote_ = rotated_for(std::move(remote_), rank_);
        }
        pass();
        if (chunks_.shared()) forward();
        send();
        schedule_.staging =
            std::max(schedule_.staging, problem_.staging.begin + problem_.staging.count);
        return std::move(schedule_);
    }

private:
    struct Sender {
        int rank = 0;
        std::int64_t number = 0;  // BlockChunks::sender_number()
    };
    // A rank of this node from whose staging buffer the node gets blocks of other nodes.
    struct Forwarder {
        int rank = 0;
        std::vector<Sender> senders;
        std::uint32_t chunks = 0;  // that have been awaited
    };

    // The array in which the blocks that this rank sends lie.
    Region array() const { return problem_.is_phase ? Region::output : Region::source; }
    // True if the put of chunk k may be eager. The slots of the first two chunks are always free.
    bool eager(int from, int to, std::int64_t k) const {
        if (k >= 2) return false;
        const std::int64_t count = chunks_.elements(from, to, 0);
        if (has_root(problem_.collective)) return is_eager_one_way(problem_, count);
        return chunks_.shared() ? is_eager(problem_, from, to, count)
                                : count <= max_eager_elements && problem_.block(to, from) > 0;
    }
    int local_peer(int away) const {
        return nodes_.members(node_)[(nodes_.local_rank(rank_) + away) % locals_];
    }
    // The ranks of other nodes that put through `at`, in the order in which they put.
    std::vector<Sender> senders_through(int at) const {
        std::vector<Sender> senders;
        if (problem_.collective == Collective::broadcast) {
            const int root = problem_.root;
            if (nodes_.node_of(root) != node_ && rail_peer(nodes_, node_, root) == at &&
                problem_.elements() > 0)
                senders.push_back({root, 0});
            return senders;
        }
        std::int64_t number = 0;
        for (const int peer : rail_peers(nodes_, at)) {
            if (problem_.size(peer) > 0) senders.push_back({peer, number});
            ++number;
        }
        std::rotate(senders.begin(), std::ranges::upper_bound(senders, at, {}, &Sender::rank),
                    senders.end());
        std::ranges::reverse(senders);
        return senders;
    }

    // Chunks of the largest block that this rank sends within its node or receives.
    std::int64_t max_chunks() const {
        std::int64_t max = 0;
        for (const int peer : readers_) max = std::max(max, chunks_.count(rank_, peer));
        for (const int peer : writers_) max = std::max(max, chunks_.count(peer, rank_));
        for (const int peer : remote_) max = std::max(max, chunks_.count(peer, rank_));
        for (const Forwarder &forwarder : forwarders_)
            for (const Sender &sender : forwarder.senders)
                max = std::max(max, chunks_.count(sender.rank, rank_));
        return max;
    }

    // Sends blocks within the node, and receives all blocks.
    void pass() {
        Lane &lane = schedule_.lanes.front();
        lane.acquire();
        for (const int peer : remote_)
            lane.signal(peer, clear_to_send,
                        count_of(std::min<std::int64_t>(2, chunks_.count(peer, rank_))),
                        eager(peer, rank_, 0));
        if (chunks_.has_pair_areas()) fill_pair_areas(lane);
        const std::int64_t max = max_chunks();
        // With thousands of senders this lane has megabytes. To grow it takes longer than to fill
        // it.
        std::size_t steps = 4 + remote_.size();
        for (const Forwarder &forwarder : forwarders_) steps += 2 * forwarder.senders.size();
        lane.steps().reserve(lane.steps().size() + steps);
        for (std::int64_t k = 0; k < max; ++k) {
            publish(lane, k);
            // The chunk is in the cache if it was published.
            copy_own_chunk(lane, k);
            collect(lane, k);
        }
        for (std::int64_t k = max; k < chunks_.count(rank_, rank_); ++k) copy_own_chunk(lane, k);
        for (const int peer : readers_)
            lane.wait_when(When::registered, peer, read, count_of(chunks_.count(rank_, peer)));
        if (chunks_.has_pair_areas()) empty_pair_areas(lane);
    }

    // Every pair flag is raised, also beside an empty block: it carries the signature of the call.
    void fill_pair_areas(Lane &lane) {
        for (int away = 1; away < locals_; ++away) {
            const int peer = local_peer(away);
            if (chunks_.in_pair_area(rank_, peer))
                lane.copy(problem_.given(rank_, peer), chunks_.pair_area(rank_, peer),
                          problem_.block(rank_, peer));
        }
        if (locals_ > 1) lane.signal_node(pair_flag, 1);
    }
    void empty_pair_areas(Lane &lane) {
        for (int away = 1; away < locals_; ++away) {
            const int peer = local_peer(away);
            lane.wait(peer, pair_flag, 1);
            if (chunks_.in_pair_area(peer, rank_))
                lane.copy(chunks_.pair_area(peer, rank_), problem_.taken(peer, rank_),
                          problem_.block(peer, rank_));
        }
    }

    // Copies chunk k of the block from this rank to itself.
    void copy_own_chunk(Lane &lane, std::int64_t k) {
        if (chunks_.count(rank_, rank_) <= k) return;
        const Place from = chunks_.given(rank_, rank_, k), to = chunks_.taken(rank_, rank_, k);
        if (from != to) lane.copy(from, to, chunks_.elements(rank_, rank_, k));
    }

    // Writes chunk k of all blocks for local peers.
    void publish(Lane &lane, std::int64_t k) {
        const std::int64_t slots = chunks_.slots();
        bool any = false;
        for (const int peer : readers_)
            if (k >= slots && chunks_.count(rank_, peer) > k)
                lane.wait_when(When::staged, peer, read, count_of(k - slots + 1));
        for (const int peer : readers_) {
            if (chunks_.count(rank_, peer) <= k) continue;
            if (!any || !chunks_.shared())
                lane.copy(chunks_.given(rank_, peer, k), chunks_.slot_at_sender(rank_, peer, k),
                          chunks_.elements(rank_, peer, k), When::staged);
            any = true;
        }
        if (any) lane.signal_node(written, count_of(k + 1));
    }

    // Reads chunk k of all blocks for this rank.
    void collect(Lane &lane, std::int64_t k) {
        const std::int64_t slots = chunks_.slots();
        bool awaited = false;  // true if the slots are filled again, or a sender may wait for this
        for (const int peer : writers_) {
            const std::int64_t count = chunks_.count(peer, rank_);
            if (count <= k) continue;
            lane.wait(peer, written, count_of(k + 1));
            lane.copy(chunks_.slot_at_sender(peer, rank_, k), chunks_.taken(peer, rank_, k),
                      chunks_.elements(peer, rank_, k));
            awaited |= count > k + slots || count == k + 1;
        }
        for (Forwarder &forwarder : forwarders_) {
            for (const auto &[peer, number] : forwarder.senders) {
                if (chunks_.count(peer, rank_) <= k) continue;
                lane.wait(forwarder.rank, forwarded, ++forwarder.chunks);
                lane.copy(chunks_.slot_at_receiver(forwarder.rank, number, k),
                          chunks_.taken(peer, rank_, k), chunks_.elements(peer, rank_, k));
                awaited |= chunks_.count(peer, rank_) > k + slots;
            }
        }
        for (const int peer : remote_) {
            const std::int64_t count = chunks_.count(peer, rank_);
            if (count <= k) continue;
            lane.wait(peer, arrived, count_of(k + 1));
            lane.copy(chunks_.slot_at_receiver(rank_, chunks_.sender_number(rank_, peer), k),
                      chunks_.taken(peer, rank_, k), chunks_.elements(peer, rank_, k));
            if (count > k + 2) lane.signal(peer, clear_to_send, count_of(k + 3));
        }
        if (awaited) lane.signal_node(read, count_of(k + 1));
    }

    // Receives the blocks that other nodes send through this rank for its whole node.
    void forward() {
        std::vector<int> senders;
        for (const Sender &sender : senders_through(rank_)) senders.push_back(sender.rank);
        if (senders.empty()) return;
        Lane in, free;
        in.acquire();
        std::int64_t max = 0;
        for (const int peer : senders) {
            const std::int64_t count = chunks_.count(peer, rank_);
            in.signal(peer, clear_to_send, count_of(std::min<std::int64_t>(2, count)),
                      eager(peer, rank_, 0));
            max = std::max(max, count);
        }
        std::uint32_t chunks = 0;
        for (std::int64_t k = 0; k < max; ++k) {
            for (const int peer : senders) {
                if (chunks_.count(peer, rank_) <= k) continue;
                in.wait(peer, arrived, count_of(k + 1));
                in.signal_node(forwarded, ++chunks);
            }
            if (k + 2 >= max) continue;
            for (const int peer : nodes_.members(node_)) free.wait(peer, read, count_of(k + 1));
            for (const int peer : senders)
                if (chunks_.count(peer, rank_) > k + 2)
                    free.signal(peer, clear_to_send, count_of(k + 3));
        }
        schedule_.lanes.push_back(std::move(in));
        if (!free.steps().empty()) schedule_.lanes.push_back(std::move(free));
    }

    // Puts the blocks for other nodes, in one lane for each receiver.
    void send() {
        const int count = nodes_.count();
        for (int away = 1; away < count; ++away) {
            const int node = (node_ + away) % count;
            if (chunks_.shared()) {
                send_to(rail_peer(nodes_, node, rank_));
            } else {
                // The ranks of this node begin with different receivers.
                const auto members = nodes_.members(node);
                const std::size_t first = nodes_.local_rank(rank_) % members.size();
                for (const int peer : members.subspan(first)) send_to(peer);
                for (const int peer : members.first(first)) send_to(peer);
            }
        }
    }

    void send_to(int peer) {
        const std::int64_t count = chunks_.count(rank_, peer);
        if (count == 0) return;
        const std::int64_t number = chunks_.sender_number(peer, rank_);
        Lane &lane = schedule_.lanes.emplace_back();
        // An eager put waits for nobody: the slot bounds how many of them the receiver has to keep.
        if (eager(rank_, peer, 0)) lane.acquire();
        for (std::int64_t k = 0; k < count; ++k) {
            lane.wait(peer, clear_to_send, count_of(k + 1), eager(rank_, peer, k));
            lane.put(chunks_.given(rank_, peer, k), chunks_.slot_at_receiver(peer, number, k),
                     chunks_.elements(rank_, peer, k), arrived, count_of(k + 1));
        }
    }

    const ArrayProblem &problem_;
    const Nodes &nodes_;
    BlockChunks chunks_;
    int rank_;
    int node_;
    int locals_;
    Schedule schedule_;
    std::vector<int> readers_, writers_;  // local peers that this rank sends to, receives from
    std::vector<int> remote_;  // ranks of other nodes that put blocks for this rank only
    std::vector<Forwarder> forwarders_;
};

}  // namespace

bool can_pass_blocks(const ArrayProblem &problem, Extent staging) {
    return BlockChunks(problem, staging, 0).size() > 0;
}

bool can_pass_blocks(const ArrayProblem &problem) {
    return can_pass_blocks(problem, problem.staging);
}

Schedule pass_blocks(const ArrayProblem &problem, int rank) {
    return pass_blocks(problem, rank, problem.staging, 0);
}

Schedule pass_blocks(const ArrayProblem &problem, int rank, Extent staging,
                     std::int64_t max_forwarded) {
    return Passing(problem, rank, staging, max_forwarded).make();
}

}  // namespace vescomm::internal::common
