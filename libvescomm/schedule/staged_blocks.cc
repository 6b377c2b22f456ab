// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/staged_blocks.h"

#include <algorithm>

#include "schedule/rails.h"

namespace vescomm {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: round k of my blocks is in my stage
    ready,  // value k + 1: I can take round k (told to a sender on another node)
    arrived,  // a put: value k + 1 brings round k
    relayed,  // value i: the first i chunks that others get from me have come from other nodes
    read,  // value k + 1: I have read round k
};

std::uint32_t count_of(std::int64_t number) {
    return static_cast<std::uint32_t>(number);
}

// What all ranks know alike: chunks and where they lie.
class Chunks {
public:
    Chunks(const Problem &problem, Extent staging, std::int64_t max_forwarded)
        : problem_(problem),
          nodes_(problem.nodes),
          staging_(staging),
          max_forwarded_(max_forwarded),
          shared_(problem.collective == Collective::all_gather_v ||
                  problem.collective == Collective::broadcast) {
        int largest = 1;
        for (int node = 0; node < nodes_.count(); ++node)
            largest = std::max(largest, static_cast<int>(nodes_.members(node).size()));
        const bool to_many = problem.collective == Collective::scatter_v ||
                             problem.collective == Collective::all_to_all_v;
        lots_ = to_many ? largest : 1;
        std::int64_t slots = 0;  // for blocks from other nodes
        if (nodes_.count() > 1) {
            switch (problem.collective) {
                case Collective::all_gather_v:
                    slots = max_rail_peers(nodes_);
                    break;
                case Collective::gather_v:
                case Collective::all_to_all_v:
                    slots = nodes_.ranks();
                    break;
                default:
                    slots = 1;
            }
        }
        size_ = staging.count / (2 * (lots_ + slots));
    }

    bool shared() const { return shared_; }
    std::int64_t size() const { return size_; }
    std::int64_t rounds(int from, int to) const {
        if (max_forwarded_ > 0 && is_forwarded(problem_, from, to, max_forwarded_)) return 0;
        return (problem_.block(from, to) + size_ - 1) / size_;
    }
    std::int64_t part(int from, int to, std::int64_t round) const {
        return std::min(size_, problem_.block(from, to) - round * size_);
    }
    Place given(int from, int to, std::int64_t round) const {
        return later(problem_.given(from, to), round);
    }
    Place taken(int from, int to, std::int64_t round) const {
        return later(problem_.taken(from, to), round);
    }
    // In the staging buffer of the sender, for a reader of its node.
    Place lot(int from, int to, std::int64_t round) const {
        return chunk(from, lots_ == 1 ? 0 : nodes_.local_rank(to), round);
    }
    // In the staging buffer of a receiver, for the n-th sender of other nodes.
    Place slot(int at, std::int64_t n, std::int64_t round) const {
        return chunk(at, lots_ + n, round);
    }
    // Which of the senders of other nodes to `at` a rank is: in an all_gather_v among its
    // rail_peers(), ranks in the same place modulo the size of the node. Cost there: O(ranks) for
    // the first node of a size.
    std::int64_t number(int at, int from) {
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

private:
    // How many of the ranks before `from` are in its place, counted round by nodes of `size`.
    std::int64_t before(int from, int size) {
        for (const Before &known : before_)
            if (known.from == from && known.size == size) return known.ranks;
        Before found{from, size, 0};
        const int place = nodes_.local_rank(from) % size;
        for (int rank = 0; rank < from; ++rank)
            if (nodes_.local_rank(rank) % size == place) ++found.ranks;
        before_.push_back(found);
        return found.ranks;
    }
    struct Before {
        int from, size;
        std::int64_t ranks;
    };

    Place later(Place place, std::int64_t round) const {
        place.offset += round * size_;
        return place;
    }
    Place chunk(int at, std::int64_t n, std::int64_t round) const {
        return {at, Region::staging, staging_.begin + (2 * n + round % 2) * size_};
    }

    const Problem &problem_;
    const Nodes &nodes_;
    const Extent staging_;
    const std::int64_t max_forwarded_;
    bool shared_;
    std::int64_t lots_ = 1;
    std::int64_t size_ = 0;
    std::vector<Before> before_;  // one for each size of nodes
};

class Passing {
public:
    Passing(const Problem &problem, int rank, Extent staging, std::int64_t max_forwarded)
        : problem_(problem),
          nodes_(problem.nodes),
          chunks_(problem, staging, max_forwarded),
          rank_(rank),
          node_(nodes_.node_of(rank)),
          locals_(static_cast<int>(nodes_.members(node_).size())) {
        schedule_.lanes.emplace_back();
    }

    Schedule make() {
        for (int away = 1; away < locals_; ++away) {
            const int peer = neighbour(away);
            if (chunks_.rounds(rank_, peer) > 0) readers_.push_back(peer);
            if (chunks_.rounds(peer, rank_) > 0) writers_.push_back(peer);
        }
        if (chunks_.shared()) {
            for (int away = 0; away < locals_; ++away)
                relays_.push_back({neighbour(away), senders_through(neighbour(away)), 0});
        } else if (nodes_.count() > 1) {
            for (int peer = 0; peer < nodes_.ranks(); ++peer)
                if (nodes_.node_of(peer) != node_ && chunks_.rounds(peer, rank_) > 0)
                    remote_.push_back(peer);
            remote_ = rotated_for(std::move(remote_), rank_);
        }
        pass();
        if (chunks_.shared()) relay();
        send();
        schedule_.staging = problem_.staging.begin + problem_.staging.count;
        return std::move(schedule_);
    }

private:
    struct Sender {
        int rank = 0;
        std::int64_t number = 0;  // Chunks::number()
    };
    // Whose blocks the ranks of this node get from the staging buffer of one of them.
    struct Relay {
        int at = 0;
        std::vector<Sender> senders;
        std::uint32_t chunks = 0;  // so far
    };

    // The first two chunks are free in any case.
    bool eager(int from, int to, std::int64_t k) const {
        if (k >= 2 || problem_.collective == Collective::broadcast) return false;
        const std::int64_t count = chunks_.part(from, to, 0);
        return chunks_.shared() ? is_eager(problem_, from, to, count)
                                : count <= max_eager_elements && problem_.block(to, from) > 0;
    }
    int neighbour(int away) const {
        return nodes_.members(node_)[(nodes_.local_rank(rank_) + away) % locals_];
    }
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
        // In the order in which they put.
        std::rotate(senders.begin(), std::ranges::upper_bound(senders, at, {}, &Sender::rank),
                    senders.end());
        std::ranges::reverse(senders);
        return senders;
    }

    std::int64_t max_rounds() const {
        std::int64_t rounds = 0;
        for (const int peer : readers_) rounds = std::max(rounds, chunks_.rounds(rank_, peer));
        for (const int peer : writers_) rounds = std::max(rounds, chunks_.rounds(peer, rank_));
        for (const int peer : remote_) rounds = std::max(rounds, chunks_.rounds(peer, rank_));
        for (const Relay &relay : relays_)
            for (const Sender &sender : relay.senders)
                rounds = std::max(rounds, chunks_.rounds(sender.rank, rank_));
        return rounds;
    }

    // What passes within the node, and what has come from others.
    void pass() {
        Lane &lane = schedule_.lanes.front();
        lane.acquire();
        for (const int peer : remote_)
            lane.signal(peer, ready,
                        count_of(std::min<std::int64_t>(2, chunks_.rounds(peer, rank_))),
                        eager(peer, rank_, 0));
        const std::int64_t rounds = max_rounds();
        // With thousands of senders this lane is of megabytes; growing it takes longer than filling
        // it.
        std::size_t steps = 4 + remote_.size();
        for (const Relay &relay : relays_) steps += 2 * relay.senders.size();
        lane.steps().reserve(lane.steps().size() + steps);
        for (std::int64_t k = 0; k < rounds; ++k) {
            publish(lane, k);
            if (k == 0) keep(lane);
            collect(lane, k);
        }
        if (rounds == 0) keep(lane);
    }

    // What a rank has for itself.
    void keep(Lane &lane) {
        const std::int64_t count = problem_.block(rank_, rank_);
        if (count == 0) return;
        const Place from = problem_.given(rank_, rank_), to = problem_.taken(rank_, rank_);
        if (from != to) lane.copy(from, to, count);
    }

    void publish(Lane &lane, std::int64_t k) {
        bool any = false;
        for (const int peer : readers_)
            if (k >= 2 && chunks_.rounds(rank_, peer) > k) lane.wait(peer, read, count_of(k - 1));
        for (const int peer : readers_) {
            if (chunks_.rounds(rank_, peer) <= k) continue;
            if (!any || !chunks_.shared())
                lane.copy(chunks_.given(rank_, peer, k), chunks_.lot(rank_, peer, k),
                          chunks_.part(rank_, peer, k));
            any = true;
        }
        if (any) lane.signal_node(written, count_of(k + 1));
    }

    void collect(Lane &lane, std::int64_t k) {
        bool awaited = false;  // does somebody fill these chunks again?
        for (const int peer : writers_) {
            if (chunks_.rounds(peer, rank_) <= k) continue;
            lane.wait(peer, written, count_of(k + 1));
            lane.copy(chunks_.lot(peer, rank_, k), chunks_.taken(peer, rank_, k),
                      chunks_.part(peer, rank_, k));
            awaited |= chunks_.rounds(peer, rank_) > k + 2;
        }
        for (Relay &relay : relays_) {
            for (const auto &[peer, number] : relay.senders) {
                if (chunks_.rounds(peer, rank_) <= k) continue;
                lane.wait(relay.at, relayed, ++relay.chunks);
                lane.copy(chunks_.slot(relay.at, number, k), chunks_.taken(peer, rank_, k),
                          chunks_.part(peer, rank_, k));
                awaited |= chunks_.rounds(peer, rank_) > k + 2;
            }
        }
        for (const int peer : remote_) {
            const std::int64_t rounds = chunks_.rounds(peer, rank_);
            if (rounds <= k) continue;
            lane.wait(peer, arrived, count_of(k + 1));
            lane.copy(chunks_.slot(rank_, chunks_.number(rank_, peer), k),
                      chunks_.taken(peer, rank_, k), chunks_.part(peer, rank_, k));
            if (rounds > k + 2) lane.signal(peer, ready, count_of(k + 3));
        }
        if (awaited) lane.signal_node(read, count_of(k + 1));
    }

    // What comes through this rank for all of its node.
    void relay() {
        std::vector<int> senders;
        for (const Sender &sender : senders_through(rank_)) senders.push_back(sender.rank);
        if (senders.empty()) return;
        Lane in, free;
        in.acquire();
        std::int64_t rounds = 0;
        for (const int peer : senders) {
            const std::int64_t its = chunks_.rounds(peer, rank_);
            in.signal(peer, ready, count_of(std::min<std::int64_t>(2, its)), eager(peer, rank_, 0));
            rounds = std::max(rounds, its);
        }
        std::uint32_t chunks = 0;
        for (std::int64_t k = 0; k < rounds; ++k) {
            for (const int peer : senders) {
                if (chunks_.rounds(peer, rank_) <= k) continue;
                in.wait(peer, arrived, count_of(k + 1));
                in.signal_node(relayed, ++chunks);
            }
            if (k + 2 >= rounds) continue;
            for (const int peer : nodes_.members(node_)) free.wait(peer, read, count_of(k + 1));
            for (const int peer : senders)
                if (chunks_.rounds(peer, rank_) > k + 2) free.signal(peer, ready, count_of(k + 3));
        }
        schedule_.lanes.push_back(std::move(in));
        if (!free.steps().empty()) schedule_.lanes.push_back(std::move(free));
    }

    // What this rank has for other nodes, a lane for each receiver.
    void send() {
        const int count = nodes_.count();
        for (int away = 1; away < count; ++away) {
            const int node = (node_ + away) % count;
            if (chunks_.shared()) {
                send_to(rail_peer(nodes_, node, rank_));
            } else {
                // The ranks of this node begin with different ones.
                const auto members = nodes_.members(node);
                const std::size_t first = nodes_.local_rank(rank_) % members.size();
                for (const int peer : members.subspan(first)) send_to(peer);
                for (const int peer : members.first(first)) send_to(peer);
            }
        }
    }

    void send_to(int peer) {
        const std::int64_t rounds = chunks_.rounds(rank_, peer);
        if (rounds == 0) return;
        const std::int64_t number = chunks_.number(peer, rank_);
        Lane &lane = schedule_.lanes.emplace_back();
        for (std::int64_t k = 0; k < rounds; ++k) {
            lane.wait(peer, ready, count_of(k + 1), eager(rank_, peer, k));
            lane.put(chunks_.given(rank_, peer, k), chunks_.slot(peer, number, k),
                     chunks_.part(rank_, peer, k), arrived, count_of(k + 1));
        }
    }

    const Problem &problem_;
    const Nodes &nodes_;
    Chunks chunks_;
    int rank_;
    int node_;
    int locals_;
    Schedule schedule_;
    std::vector<int> readers_, writers_;  // of this node
    std::vector<int> remote_;  // who puts blocks for this rank alone
    std::vector<Relay> relays_;
};

}  // namespace

std::int64_t largest_forwarded(const Problem &problem, std::int64_t places) {
    return std::min(problem.staging.count / 128, problem.staging.count / 4 / places);
}

Extent beside_forwarded(const Problem &problem, std::int64_t places) {
    const std::int64_t taken = places * largest_forwarded(problem, places);
    return {problem.staging.begin + taken, problem.staging.count - taken};
}

bool is_forwarded(const Problem &problem, int from, int to, std::int64_t max_forwarded) {
    const Nodes &nodes = problem.nodes;
    if (max_forwarded == 0 || nodes.together(from, to)) return false;
    const int of_many = problem.collective == Collective::gather_v ? from : to;
    if (nodes.members(nodes.node_of(of_many)).size() == 1) return false;
    const std::int64_t count = problem.block(from, to);
    return count > 0 && count <= max_forwarded;
}

bool can_pass_blocks(const Problem &problem, Extent staging) {
    return problem.arrays && Chunks(problem, staging, 0).size() > 0;
}

bool can_pass_blocks(const Problem &problem) {
    return can_pass_blocks(problem, problem.staging);
}

Schedule pass_blocks(const Problem &problem, int rank) {
    return pass_blocks(problem, rank, problem.staging, 0);
}

Schedule pass_blocks(const Problem &problem, int rank, Extent staging, std::int64_t max_forwarded) {
    return Passing(problem, rank, staging, max_forwarded).make();
}

}  // namespace vescomm
