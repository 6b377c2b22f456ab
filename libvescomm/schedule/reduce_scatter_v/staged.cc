// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "schedule/algorithms.h"
#include "schedule/node_blocks.h"
#include "schedule/rails.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: round k of my contributions is in my stage
    ready,  // value k + 1: I can take round k (told to the ranks that put into my partial sums)
    arrived,  // a put: value k + 1 brings round k
    read,  // value k + 1: I have read round k
};

std::uint32_t count_of(std::int64_t number) {
    return static_cast<std::uint32_t>(number);
}

// Chunks of the staging buffer and of the partial sums, two for each shard unless one round is
// enough, as all ranks know them.
class Chunks {
public:
    explicit Chunks(const Problem &problem) : problem_(problem), nodes_(problem.nodes) {
        std::int64_t shards = 0, largest = 0;
        for (int owner = 0; owner < problem.ranks(); ++owner) {
            numbers_.push_back(shards);
            if (problem.size(owner) > 0) ++shards;
            largest = std::max(largest, problem.size(owner));
        }
        size_ = problem.staging.count / std::max<std::int64_t>(1, 2 * shards);
        if (nodes_.count() > 1) {
            const std::int64_t sums = nodes_.count() - 1 + max_rail_peers(nodes_);
            size_ = std::min(size_, problem.partial.count / (2 * sums));
            // Between nodes messages cost more than what two rounds do at the same time.
            at_once_ = problem.elements() <= problem.staging.count &&
                       largest * sums <= problem.partial.count;
        }
        at_once_ = at_once_ || largest <= size_;
        if (!at_once_) return;
        size_ = std::max<std::int64_t>(1, largest);
        chunks_ = 1;
    }

    std::int64_t size() const { return size_; }
    // Whether one round is enough. Then the staging buffer holds the vector as it is.
    bool at_once() const { return at_once_; }
    std::int64_t rounds(int owner) const { return (problem_.size(owner) + size_ - 1) / size_; }
    std::int64_t part(int owner, std::int64_t round) const {
        return std::min(size_, problem_.size(owner) - round * size_);
    }
    Place given(int rank, int owner, std::int64_t round) const {
        return {rank, Region::source, problem_.begin(owner) + round * size_};
    }
    Place result(int owner, std::int64_t round) const {
        Place place = problem_.output(owner);
        place.offset += round * size_;
        return place;
    }
    Place lot(int rank, int owner, std::int64_t round) const {
        if (at_once_)
            return {rank, Region::staging, problem_.staging.begin + problem_.begin(owner)};
        return {rank, Region::staging,
                problem_.staging.begin + (chunks_ * numbers_[owner] + round % chunks_) * size_};
    }
    // The sum that `node` has made for `owner`, as it lies there.
    Place sum_from(int node, int owner, std::int64_t round) const {
        const int slot = node - (node > nodes_.node_of(owner) ? 1 : 0);
        return sum(owner, slot, round);
    }
    // The sum that a rank makes for the n-th owner of another node.
    Place sum_made(int rank, std::int64_t n, std::int64_t round) const {
        return sum(rank, nodes_.count() - 1 + n, round);
    }

private:
    Place sum(int rank, std::int64_t slot, std::int64_t round) const {
        return {rank, Region::partial,
                problem_.partial.begin + (chunks_ * slot + round % chunks_) * size_};
    }

    const Problem &problem_;
    const Nodes &nodes_;
    std::vector<std::int64_t> numbers_;  // of owners, not counting empty shards
    std::int64_t size_ = 0;
    std::int64_t chunks_ = 2;  // of each
    bool at_once_ = false;
};

// Below this many elements it takes longer to leave something out than to copy it.
constexpr std::int64_t min_gap = 1024;

// The shards of `owners`, and what little is between them.
std::vector<Extent> extents_of(const Problem &problem, const std::vector<int> &owners) {
    std::vector<Extent> extents;
    for (const int owner : owners) {
        const std::int64_t begin = problem.begin(owner), end = begin + problem.size(owner);
        const bool is_near =
            !extents.empty() && begin - extents.back().begin - extents.back().count < min_gap;
        if (is_near) extents.back().count = end - extents.back().begin;
        else extents.push_back({begin, end - begin});
    }
    return extents;
}

}  // namespace

bool can_use_staging(const Problem &problem) {
    return problem.arrays && Chunks(problem).size() > 0;
}

// Staged: contributions lie in arrays of the callers, and pass through the staging buffer chunk by
// chunk.
//
//     node A                                  node B
//     source 0 ─copy─► stage 0 ─┐             stage 2 ─┐
//     source 1 ────────────────┴─sum─► ...    stage 3 ─┴─sum─► partial ─put─► partial of r1 ─► ...
//
// An owner sums what its node's ranks have staged for it, its own contribution straight from its
// array, in the order of ranks. For an owner on another node the rank in its place does, and puts
// one partial sum for the node, as in direct.cc.
//
// Cost: every contribution is read and written once more than in direct.cc, in the cache.
// Source: direct.cc; double buffering of chunks as in any copy through shared memory.
Schedule staged(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const Chunks chunks(problem);
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const auto reader = [&](int owner) {
        return nodes.node_of(owner) == node ? owner : rail_peer(nodes, node, owner);
    };
    std::vector<int> abroad;  // owners on other nodes for whom this rank sums
    for (const int peer : rotated_after(rail_peers(nodes, rank), rank))
        if (problem.size(peer) > 0) abroad.push_back(peer);
    std::vector<int> partners;  // who sums for this rank on other nodes
    for (int other = 0; other < nodes.count() && problem.size(rank) > 0; ++other)
        if (other != node) partners.push_back(rail_peer(nodes, other, rank));
    std::int64_t rounds = 0;
    std::vector<int> given;  // owners for whom others read this rank's contribution
    for (int owner = 0; owner < problem.ranks(); ++owner) {
        if (problem.size(owner) == 0) continue;
        rounds = std::max(rounds, chunks.rounds(owner));
        if (reader(owner) != rank) given.push_back(owner);
    }

    Schedule schedule;
    schedule.staging = problem.staging.begin + problem.staging.count;
    schedule.partial = problem.partial.begin + problem.partial.count;
    Lane &lane = schedule.lanes.emplace_back();
    lane.acquire();
    // The first two chunks are free in any case.
    for (const int partner : rotated_for(partners, rank))
        lane.signal(partner, ready, count_of(std::min<std::int64_t>(2, chunks.rounds(rank))),
                    is_eager(problem, partner, rank, chunks.part(rank, 0)));

    // Once in a round for each member.
    std::vector<std::int64_t> waited(members.size(), -1), waited_for_read(members.size(), -1);
    const auto first_time = [&](std::vector<std::int64_t> &last, int member, std::int64_t k) {
        return std::exchange(last[static_cast<std::size_t>(nodes.local_rank(member))], k) != k;
    };
    const auto contributions = [&](int owner, std::int64_t k) {
        std::vector<Place> places;
        for (const int member : members) {
            if (member == rank) {
                places.push_back(chunks.given(rank, owner, k));
            } else {
                if (first_time(waited, member, k)) lane.wait(member, written, count_of(k + 1));
                places.push_back(chunks.lot(member, owner, k));
            }
        }
        return places;
    };
    for (std::int64_t k = 0; k < rounds; ++k) {
        bool writes = false, awaited = false;
        if (chunks.at_once()) {
            for (const Extent &extent : extents_of(problem, given))
                lane.copy({rank, Region::source, extent.begin},
                          {rank, Region::staging, problem.staging.begin + extent.begin},
                          extent.count);
            writes = !given.empty();
        }
        for (const int owner : given) {
            if (chunks.at_once() || chunks.rounds(owner) <= k) continue;
            if (k >= 2 && first_time(waited_for_read, reader(owner), k))
                lane.wait(reader(owner), read, count_of(k - 1));
            lane.copy(chunks.given(rank, owner, k), chunks.lot(rank, owner, k),
                      chunks.part(owner, k));
            writes = true;
        }
        if (writes) lane.signal_node(written, count_of(k + 1));
        for (std::size_t i = 0; i < abroad.size(); ++i) {
            const int owner = abroad[i];
            if (chunks.rounds(owner) <= k) continue;
            const Place sum = chunks.sum_made(rank, static_cast<std::int64_t>(i), k);
            const auto from = contributions(owner, k);
            const bool eager = k < 2 && is_eager(problem, rank, owner, chunks.part(owner, 0));
            // From the third round on, that also means that the last sum of this chunk has left.
            if (!eager) lane.wait(owner, ready, count_of(k + 1));
            lane.reduce(from, sum, chunks.part(owner, k), false);
            if (eager) lane.wait(owner, ready, count_of(k + 1), true);
            lane.put(sum, chunks.sum_from(node, owner, k), chunks.part(owner, k), arrived,
                     count_of(k + 1));
            awaited |= chunks.rounds(owner) > k + 2;
        }
        if (problem.size(rank) > 0 && chunks.rounds(rank) > k) {
            auto from = contributions(rank, k);
            for (const int partner : partners) {
                lane.wait(partner, arrived, count_of(k + 1));
                from.push_back(chunks.sum_from(nodes.node_of(partner), rank, k));
            }
            lane.reduce(from, chunks.result(rank, k), chunks.part(rank, k), true);
            for (const int partner : partners)
                if (chunks.rounds(rank) > k + 2) lane.signal(partner, ready, count_of(k + 3));
            awaited |= chunks.rounds(rank) > k + 2;
        }
        if (awaited) lane.signal_node(read, count_of(k + 1));
    }
    return schedule;
}

}  // namespace vescomm::reduce_scatter_v
