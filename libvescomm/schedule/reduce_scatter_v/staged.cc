// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/extent.h"
#include "schedule/rails.h"

namespace vescomm::internal::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: chunk k of all contributions of this rank is in its staging buffer
    clear_to_send,  // value k + 1, for a rank of another node: it may put its sum of chunk k
    arrived,  // raised by a put: value k + 1 means that the sum of chunk k has arrived
    read,  // value k + 1: this rank has read chunk k of all contributions
};

std::uint32_t count_of(std::int64_t number) {
    return static_cast<std::uint32_t>(number);
}

// The chunks of all shards, and their slots in the staging buffer and in the partial sums: two for
// each shard, or one if the shards are not cut. The same on every rank.
class ShardChunks {
public:
    explicit ShardChunks(const ArrayProblem &problem) : problem_(problem), nodes_(problem.nodes) {
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
            // Between nodes a second message costs more than the overlap of two chunks saves.
            at_once_ = problem.elements() <= problem.staging.count &&
                       largest * sums <= problem.partial.count;
        }
        if (nodes_.count() == 1 && shards > 0) {
            const ChunkSlots on_node = chunk_slots_on_node(problem.staging.count, shards, problem);
            size_ = on_node.size;
            slots_ = on_node.slots;
        }
        at_once_ = at_once_ || largest <= size_;
        if (!at_once_) return;
        size_ = std::max<std::int64_t>(1, largest);
        slots_ = 1;
    }

    // Elements of a chunk.
    std::int64_t size() const { return size_; }
    // Slots of each shard.
    std::int64_t slots() const { return slots_; }
    // True if each shard is one chunk. The staging buffer then has the layout of the vector.
    bool at_once() const { return at_once_; }
    // Number of chunks of a shard.
    std::int64_t count(int owner) const { return chunks(owner).count(); }
    // Elements of chunk k.
    std::int64_t elements(int owner, std::int64_t k) const { return chunks(owner).elements(k); }
    Place given(int rank, int owner, std::int64_t k) const {
        return {rank, Region::source, problem_.begin(owner) + chunks(owner).begin(k)};
    }
    Place result(int owner, std::int64_t k) const {
        return later(problem_.output(owner), chunks(owner).begin(k));
    }
    // The slot of chunk k in the staging buffer of a rank.
    Place slot(int rank, int owner, std::int64_t k) const {
        const std::int64_t offset = at_once_
                                        ? problem_.begin(owner)
                                        : slots_ * numbers_[owner] * size_ + chunks(owner).slot(k);
        return {rank, Region::staging, problem_.staging.begin + offset,
                given(rank, owner, k).offset};
    }
    // The place at `owner` of the sum that `node` has made for it.
    Place sum_from(int node, int owner, std::int64_t k) const {
        const int slot = node - (node > nodes_.node_of(owner) ? 1 : 0);
        return sum(owner, slot, k);
    }
    // The place of the sum that a rank makes for its n-th owner on other nodes.
    Place sum_made(int rank, std::int64_t n, std::int64_t k) const {
        return sum(rank, nodes_.count() - 1 + n, k);
    }

private:
    Chunks chunks(int owner) const { return {problem_.size(owner), size_, slots_}; }
    Place sum(int rank, std::int64_t sum, std::int64_t k) const {
        return {rank, Region::partial,
                problem_.partial.begin + (slots_ * sum + k % slots_) * size_};
    }

    const ArrayProblem &problem_;
    const Nodes &nodes_;
    std::vector<std::int64_t> numbers_;  // by owner: number of its shard, without empty ones
    std::int64_t size_ = 0;  // elements of a chunk
    std::int64_t slots_ = 2;  // for each shard
    bool at_once_ = false;
};

// Minimum elements of a gap that copies leave out. To copy a smaller gap takes less time.
constexpr std::int64_t min_gap = 1024;

// The shards of `owners`, merged across small gaps.
std::vector<Extent> extents_of(const ArrayProblem &problem, const std::vector<int> &owners) {
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

bool can_use_staging(const ArrayProblem &problem) {
    return ShardChunks(problem).size() > 0;
}

// Staged: contributions lie in arrays of the callers, and pass through the staging buffer chunk by
// chunk.
//
//     node A                                node B
//     source 0 ─copy─► staging 0 ─┐         staging 2 ─┐
//     source 1 ───────────────────┴─sum─►   staging 3 ─┴─sum─► partial ─put─► partial of r1 ─►
//
// An owner sums the staged contributions of its node in the order of ranks. It reads its own
// contribution from its array. For an owner on another node its rail peer makes the sum of the node
// and puts it, as in direct.cc.
//
// Registered sources are read where they are, and their ranks wait at the end until all have been
// read.
//
// Cost: every contribution in private memory is read and written once more than in direct.cc, in
// the cache. Source: direct.cc; double buffering of chunks as in any copy through shared memory.
Schedule staged(const ArrayProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const ShardChunks chunks(problem);
    const std::int64_t slots = chunks.slots();
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const auto reader = [&](int owner) {
        return nodes.node_of(owner) == node ? owner : rail_peer(nodes, node, owner);
    };
    std::vector<int> remote_owners;  // owners on other nodes for which this rank sums
    for (const int peer : rotated_after(rail_peers(nodes, rank), rank))
        if (problem.size(peer) > 0) remote_owners.push_back(peer);
    std::vector<int> partners;  // ranks of other nodes that sum for this rank
    for (int other = 0; other < nodes.count() && problem.size(rank) > 0; ++other)
        if (other != node) partners.push_back(rail_peer(nodes, other, rank));
    std::int64_t max_chunks = 0;  // of the largest shard
    std::vector<int> given;  // owners for which other ranks read this rank's contribution
    for (int owner = 0; owner < problem.ranks(); ++owner) {
        if (problem.size(owner) == 0) continue;
        max_chunks = std::max(max_chunks, chunks.count(owner));
        if (reader(owner) != rank) given.push_back(owner);
    }

    Schedule schedule;
    schedule.staging = problem.staging.begin + problem.staging.count;
    schedule.partial = problem.partial.begin + problem.partial.count;
    Lane &lane = schedule.lanes.emplace_back();
    lane.acquire();
    // The slots of the first two chunks are always free.
    for (const int partner : rotated_for(partners, rank))
        lane.signal(partner, clear_to_send, count_of(std::min<std::int64_t>(2, chunks.count(rank))),
                    is_eager(problem, partner, rank, chunks.elements(rank, 0)));

    // Waits once for each member and chunk number.
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
                places.push_back(chunks.slot(member, owner, k));
            }
        }
        return places;
    };
    // True if local peers wait until chunk k of all contributions for `owner` has been read: its
    // slots are filled again, or it is the last one of registered sources.
    const auto is_awaited = [&](int owner, std::int64_t k) {
        return members.size() > 1 &&
               (chunks.count(owner) > k + slots || chunks.count(owner) == k + 1);
    };
    for (std::int64_t k = 0; k < max_chunks; ++k) {
        bool writes = false, awaited = false;
        if (chunks.at_once()) {
            for (const Extent &extent : extents_of(problem, given))
                lane.copy({rank, Region::source, extent.begin},
                          {rank, Region::staging, problem.staging.begin + extent.begin},
                          extent.count, When::staged);
            writes = !given.empty();
        }
        for (const int owner : given) {
            if (chunks.at_once() || chunks.count(owner) <= k) continue;
            if (k >= slots && first_time(waited_for_read, reader(owner), k))
                lane.wait_when(When::staged, reader(owner), read, count_of(k - slots + 1));
            lane.copy(chunks.given(rank, owner, k), chunks.slot(rank, owner, k),
                      chunks.elements(owner, k), When::staged);
            writes = true;
        }
        if (writes) lane.signal_node(written, count_of(k + 1));
        for (std::size_t i = 0; i < remote_owners.size(); ++i) {
            const int owner = remote_owners[i];
            if (chunks.count(owner) <= k) continue;
            const Place sum = chunks.sum_made(rank, static_cast<std::int64_t>(i), k);
            const auto from = contributions(owner, k);
            const bool eager = k < 2 && is_eager(problem, rank, owner, chunks.elements(owner, 0));
            // From the third chunk on this also means that the previous sum in this slot has left.
            if (!eager) lane.wait(owner, clear_to_send, count_of(k + 1));
            lane.reduce(from, sum, chunks.elements(owner, k), false);
            if (eager) lane.wait(owner, clear_to_send, count_of(k + 1), true);
            lane.put(sum, chunks.sum_from(node, owner, k), chunks.elements(owner, k), arrived,
                     count_of(k + 1));
            awaited |= is_awaited(owner, k);
        }
        if (problem.size(rank) > 0 && chunks.count(rank) > k) {
            auto from = contributions(rank, k);
            for (const int partner : partners) {
                lane.wait(partner, arrived, count_of(k + 1));
                from.push_back(chunks.sum_from(nodes.node_of(partner), rank, k));
            }
            lane.reduce(from, chunks.result(rank, k), chunks.elements(rank, k), true);
            for (const int partner : partners)
                if (chunks.count(rank) > k + 2)
                    lane.signal(partner, clear_to_send, count_of(k + 3));
            awaited |= is_awaited(rank, k);
        }
        if (awaited) lane.signal_node(read, count_of(k + 1));
    }
    std::vector<std::int64_t> last(members.size(), 0);  // chunks that each local peer reads
    for (const int owner : given) {
        std::int64_t &count = last[static_cast<std::size_t>(nodes.local_rank(reader(owner)))];
        count = std::max(count, chunks.count(owner));
    }
    for (const int member : members)
        if (const auto count = last[static_cast<std::size_t>(nodes.local_rank(member))]; count > 0)
            lane.wait_when(When::registered, member, read, count_of(count));
    return schedule;
}

}  // namespace vescomm::internal::reduce_scatter_v
