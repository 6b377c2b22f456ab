// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "schedule/algorithms.h"
#include "schedule/node_blocks.h"
#include "schedule/rails.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    written,  // my contribution can be read
    ready,  // my partial sums may be overwritten (told to the ranks that put into them)
    arrived,  // a put: the sender's sums are among the receiver's partial sums
    relayed,  // value i: my slices of what the first i rounds bring are there
    read,  // I have read all I need
};

// What passes to a node in a round: sums for that node and those before it, packed in the order of
// the vector, a slice to each of its first ranks.
class Message {
public:
    Message(const NodeBlocks &blocks, int max_slices, int to, int round)
        : extents_(blocks.extents(to - blocks.sent(round) + 1, blocks.sent(round))),
          elements_(elements_of(extents_)),
          slices_(elements_ == 0 ? 0 : slices_for(max_slices, elements_)) {
        std::int64_t packed = 0;
        for (const Extent &extent : extents_) {
            packed_.push_back(packed);
            packed += extent.count;
        }
    }

    int slices() const { return slices_; }
    std::vector<Extent> slice(int n) const { return slice_of(extents_, n, slices_); }

    // Where an element of the vector is.
    struct Found {
        bool is_here = false;
        std::int64_t together = 0;  // so many elements from it on are, or are not
        int slice = 0;
        std::int64_t offset = 0;  // in the slice
    };
    Found find(std::int64_t element) const {
        const auto next = std::ranges::upper_bound(extents_, element, {}, &Extent::begin);
        const auto n = static_cast<std::size_t>(next - extents_.begin());
        const std::int64_t left =
            n == 0 ? 0 : extents_[n - 1].begin + extents_[n - 1].count - element;
        if (left <= 0) {
            constexpr auto all = std::numeric_limits<std::int64_t>::max();
            return {.together = next == extents_.end() ? all : next->begin - element};
        }
        const std::int64_t at = packed_[n - 1] + element - extents_[n - 1].begin;
        int slice = 0;
        while (slice_begin(elements_, slice + 1, slices_) <= at) ++slice;
        return {.is_here = true,
                .together = std::min(left, slice_begin(elements_, slice + 1, slices_) - at),
                .slice = slice,
                .offset = at - slice_begin(elements_, slice, slices_)};
    }

private:
    std::vector<Extent> extents_;
    std::vector<std::int64_t> packed_;  // where each begins
    std::int64_t elements_;
    int slices_;
};

// Where the partial sums of a rank lie: what each round brings, the last round first; then what
// this rank puts.
class Places {
public:
    Places(const Problem &problem, const NodeBlocks &blocks, int max_slices)
        : problem_(problem), blocks_(blocks), max_slices_(max_slices) {}

    // The slice that a message to a node brings to its rank.
    Place arrival(int to, int slice, int round) const {
        std::int64_t before = 0;
        for (int k = blocks_.rounds() - 1; k > round; --k) before += size(to, slice, k);
        return at(to, slice, before);
    }
    // The slice that a rank of a node puts.
    Place departure(int from, int slice, int round) const {
        std::int64_t before = 0;
        for (int k = blocks_.rounds() - 1; k >= 0; --k) {
            before += size(from, slice, k);
            if (k > round) before += size(from - (1 << k), slice, k);
        }
        return at(from, slice, before);
    }
    std::int64_t size(int to, int slice, int round) const {
        const int nodes = blocks_.sent(round);
        const std::int64_t elements = blocks_.elements(to - nodes + 1, nodes);
        const int slices = slices_for(max_slices_, elements);
        if (slice >= slices) return 0;
        return slice_begin(elements, slice + 1, slices) - slice_begin(elements, slice, slices);
    }

private:
    Place at(int node, int slice, std::int64_t offset) const {
        return {problem_.nodes.members(blocks_.wrap(node))[slice], Region::partial,
                problem_.partial.begin + offset};
    }

    const Problem &problem_;
    const NodeBlocks &blocks_;
    int max_slices_;
};

}  // namespace

bool can_bruck(const Problem &problem) {
    if (problem.nodes.count() == 1) return false;
    if (!problem.arrays) return !problem.per_node;
    // What comes and what goes are the vector each, at most; a slice is no longer than the vector's
    // share of a rank, or than what nobody shares.
    const NodeBlocks blocks(problem.nodes, problem.cuts);
    const std::int64_t share = problem.elements() / smallest_node(problem.nodes) + 1;
    const std::int64_t sums =
        std::min(problem.elements(), share + blocks.rounds() * (2 * min_slice + 1));
    return problem.elements() <= problem.staging.count && 2 * sums <= problem.partial.count;
}

// Bruck, backwards: sums for 4, 2, 1 nodes travel together.
//
//     round k, the last first:
//         node n + 2^k ──sums for 2^k nodes up to n──► node n ──for as many──► node n - 2^k
//
// A node adds what the rounds before have brought to the contributions of its own ranks, in one
// pass, just before it puts the sum; in the end each rank does so for its own shard. What a round
// carries is packed, and is one message; of a long one, each of several ranks of the node sums and
// puts a slice.
//
// Cost: log2(nodes) rounds, rounded up; a node sends the sums for every other node once, and reads
// every contribution once. Best while messages cost more than bytes.
// Source: all_gather_v/bruck.cc with time reversed, as is usual for trees; NCCL's PAT (Jeaugey,
// "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025) does so too.
Schedule bruck(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const bool alone = members.size() == 1;
    const NodeBlocks blocks(nodes, problem.cuts);
    const int max_slices = smallest_node(nodes), rounds = blocks.rounds();
    const Places places(problem, blocks, max_slices);
    std::vector<Message> incoming, outgoing;
    std::vector<std::vector<Place>> arrivals;  // of each round, each slice
    for (int k = 0; k < rounds; ++k) {
        incoming.emplace_back(blocks, max_slices, node, k);
        outgoing.emplace_back(blocks, max_slices, node - (1 << k), k);
        std::vector<Place> &slices = arrivals.emplace_back();
        for (int slice = 0; slice < incoming[k].slices(); ++slice)
            slices.push_back(places.arrival(node, slice, k));
    }
    const auto there = [&](int other) { return nodes.members(blocks.wrap(other))[mine]; };
    const auto phases_to = [rounds](int k) { return static_cast<std::uint32_t>(rounds - k); };

    Schedule schedule;
    Lane lane, relay;
    if (problem.arrays) lane.acquire();
    for (int k = rounds - 1; k >= 0; --k) {
        if (mine >= incoming[k].slices()) continue;
        lane.signal(there(node + (1 << k)), ready, 1);
        relay.wait(there(node + (1 << k)), arrived, 1);
        relay.signal_node(relayed, phases_to(k));
    }
    const Place shared{rank, Region::staging, problem.staging.begin};
    if (!alone && problem.arrays) lane.copy({rank, Region::source, 0}, shared, problem.elements());
    if (!alone) lane.signal_node(written, 1);
    for (const int peer : members)
        if (peer != rank) lane.wait(peer, written, 1);

    // Contributions, and what the rounds after k have brought.
    const auto sum = [&](std::int64_t begin, std::int64_t size, int k, Place to, bool finish) {
        for (const std::int64_t end = begin + size; begin < end;) {
            std::int64_t count = end - begin;
            std::vector<Place> from;
            for (const int peer : members)
                from.push_back(!problem.arrays ? Place{peer, Region::buffer, begin}
                               : peer == rank
                                   ? Place{peer, Region::source, begin}
                                   : Place{peer, Region::staging, shared.offset + begin});
            for (int j = rounds - 1; j > k; --j) {
                const auto found = incoming[j].find(begin);
                count = std::min(count, found.together);
                if (!found.is_here) continue;
                Place place = arrivals[j][found.slice];
                place.offset += found.offset;
                from.push_back(place);
            }
            lane.reduce(from, to, count, finish);
            begin += count;
            to.offset += count;
        }
    };
    for (int k = rounds - 1; k >= 0; --k) {
        const Message &message = outgoing[k];
        if (mine < message.slices()) {
            const Place from = places.departure(node, mine, k);
            Place to = from;
            for (const Extent &extent : message.slice(mine)) {
                sum(extent.begin, extent.count, k, to, false);
                to.offset += extent.count;
            }
            schedule.partial = std::max(schedule.partial, to.offset);
            lane.wait(there(node - (1 << k)), ready, 1);
            lane.put(from, places.arrival(node - (1 << k), mine, k), to.offset - from.offset,
                     arrived, 1);
        }
        for (int slice = 0; slice < incoming[k].slices(); ++slice)
            lane.wait(members[slice], relayed, phases_to(k));
    }
    sum(problem.begin(rank), problem.size(rank), -1, problem.output(rank), true);
    schedule.staging = alone || !problem.arrays ? 0 : shared.offset + problem.elements();
    for (int k = 0; k < rounds; ++k)
        if (mine < incoming[k].slices())
            schedule.partial =
                std::max(schedule.partial, arrivals[k][mine].offset + places.size(node, mine, k));
    // The buffer may be overwritten, and so may the partial sums.
    if (!problem.arrays && !alone) {
        lane.signal_node(read, 1);
        for (const int peer : members)
            if (peer != rank) lane.wait(peer, read, 1);
    }
    schedule.lanes.push_back(std::move(lane));
    if (!relay.steps().empty()) schedule.lanes.push_back(std::move(relay));
    return schedule;
}

}  // namespace vescomm::reduce_scatter_v
