// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/node_blocks.h"
#include "schedule/rails.h"

namespace vescomm::internal::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    written,  // the contribution of this rank can be read
    clear_to_send,  // for a rank of another node: the partial sums may be overwritten
    arrived,  // raised by a put: the sender's sums are among the receiver's partial sums
    forwarded,  // value i: the slices of the first i phases have arrived at this rank
    read,  // this rank has read all data it needs
};

// The message to a node in one phase: sums for that node and the nodes before it, packed in the
// order of the vector. Each of the first ranks of the node gets a slice.
class Message {
public:
    Message(const NodeBlocks &blocks, int max_slices, int to, int phase)
        : extents_(blocks.extents(to - blocks.sent(phase) + 1, blocks.sent(phase))),
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

    // Position of an element of the vector in the message.
    struct Found {
        bool is_here = false;
        // Number of elements from it on that are in the same slice; if !is_here: in no slice.
        std::int64_t together = 0;
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
    std::vector<std::int64_t> packed_;  // offset of each extent in the message
    std::int64_t elements_;
    int slices_;
};

// Layout of the partial sums of a rank: the arrivals of each phase, the last phase first; then the
// sums that this rank puts.
class Places {
public:
    // `begin`: of the partial sums that the algorithm may use.
    Places(const Nodes &nodes, const NodeBlocks &blocks, int max_slices, std::int64_t begin)
        : nodes_(nodes), blocks_(blocks), max_slices_(max_slices), begin_(begin) {}

    // Place of a slice of the message to node `to`, at its receiver.
    Place arrival(int to, int slice, int phase) const {
        std::int64_t before = 0;
        for (int k = blocks_.phases() - 1; k > phase; --k) before += size(to, slice, k);
        return at(to, slice, before);
    }
    // Place of a slice of the message of node `from`, at its sender.
    Place departure(int from, int slice, int phase) const {
        std::int64_t before = 0;
        for (int k = blocks_.phases() - 1; k >= 0; --k) {
            before += size(from, slice, k);
            if (k > phase) before += size(from - (1 << k), slice, k);
        }
        return at(from, slice, before);
    }
    // Elements of all arrivals and departures of a rank.
    std::int64_t all(int node, int slice) const {
        std::int64_t elements = 0;
        for (int k = 0; k < blocks_.phases(); ++k)
            elements += size(node, slice, k) + size(node - (1 << k), slice, k);
        return elements;
    }
    // Elements of a slice of the message to node `to`.
    std::int64_t size(int to, int slice, int phase) const {
        const int nodes = blocks_.sent(phase);
        const std::int64_t elements = blocks_.elements(to - nodes + 1, nodes);
        const int slices = slices_for(max_slices_, elements);
        if (slice >= slices) return 0;
        return slice_begin(elements, slice + 1, slices) - slice_begin(elements, slice, slices);
    }

private:
    Place at(int node, int slice, std::int64_t offset) const {
        return {nodes_.members(blocks_.wrap(node))[slice], Region::partial, begin_ + offset};
    }

    const Nodes &nodes_;
    const NodeBlocks &blocks_;
    int max_slices_;
    std::int64_t begin_;
};

}  // namespace

bool can_bruck(const AnyProblem &any) {
    if (any->nodes.count() == 1) return false;
    if (const BufferProblem *buffers = any.buffers()) return !buffers->per_node;
    const ArrayProblem &problem = *any.arrays();
    // Arrivals and departures of a node are at most the vector each. A slice is at most the share
    // of a rank, or less than 2 * min_slice if the message is not cut.
    const NodeBlocks blocks(problem.nodes, problem.cuts);
    const std::int64_t share = problem.elements() / problem.nodes.smallest() + 1;
    const std::int64_t sums =
        std::min(problem.elements(), share + blocks.phases() * (2 * min_slice + 1));
    return problem.elements() <= problem.staging.count && 2 * sums <= problem.partial.count;
}

std::int64_t max_partial_of_bruck(const BufferProblem &problem) {
    const NodeBlocks blocks(problem.nodes, problem.cuts);
    const int max_slices = problem.nodes.smallest();
    const Places places(problem.nodes, blocks, max_slices, 0);
    std::int64_t max = 0;
    for (int node = 0; node < problem.nodes.count(); ++node)
        for (int slice = 0; slice < max_slices; ++slice)
            max = std::max(max, places.all(node, slice));
    return max;
}

// Bruck, backwards: each message carries the sums for ..., 4, 2, 1 nodes.
//
//     phase k, the last first:   node n + 2^k ──sums for the 2^k nodes up to n──► node n
//
// Just before a node puts a sum, it adds the arrivals of earlier phases to the contributions of its
// own ranks, in one pass. At the end each rank does so for its own shard. The sums of a phase are
// packed into one message. A long message is cut into slices, which several ranks of the node sum
// and put.
//
// Cost: ceil(log2(nodes)) phases; a node sends the sums for every other node once, and reads every
// contribution once. Best while messages cost more than bytes.
// Source: all_gather_v/bruck.cc with time reversed, as is usual for trees; NCCL's PAT (Jeaugey,
// "PAT: a new algorithm for all-gather and reduce-scatter operations at scale", 2025) does so too.
Schedule bruck(const AnyProblem &any, int rank) {
    const Problem &problem = *any;
    const ArrayProblem *arrays = any.arrays();
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const bool alone = members.size() == 1;
    const NodeBlocks blocks(nodes, problem.cuts);
    const int max_slices = nodes.smallest(), phases = blocks.phases();
    const Places places(nodes, blocks, max_slices, arrays != nullptr ? arrays->partial.begin : 0);
    std::vector<Message> incoming, outgoing;
    std::vector<std::vector<Place>> arrivals;  // by phase and slice
    for (int k = 0; k < phases; ++k) {
        incoming.emplace_back(blocks, max_slices, node, k);
        outgoing.emplace_back(blocks, max_slices, node - (1 << k), k);
        std::vector<Place> &slices = arrivals.emplace_back();
        for (int slice = 0; slice < incoming[k].slices(); ++slice)
            slices.push_back(places.arrival(node, slice, k));
    }
    const auto there = [&](int other) { return nodes.members(blocks.wrap(other))[mine]; };
    const auto phases_to = [phases](int k) { return static_cast<std::uint32_t>(phases - k); };

    Schedule schedule;
    Lane lane, forward;
    if (arrays != nullptr) lane.acquire();
    for (int k = phases - 1; k >= 0; --k) {
        if (mine >= incoming[k].slices()) continue;
        lane.signal(there(node + (1 << k)), clear_to_send, 1);
        forward.wait(there(node + (1 << k)), arrived, 1);
        forward.signal_node(forwarded, phases_to(k));
    }
    const auto shared = [&](int peer, std::int64_t begin) {
        return arrays != nullptr ? Place{peer, Region::staging, arrays->staging.begin + begin}
                                 : Place{peer, Region::buffer, begin};
    };
    if (!alone && arrays != nullptr)
        lane.copy({rank, Region::source, 0}, shared(rank, 0), problem.elements());
    if (!alone) lane.signal_node(written, 1);
    for (const int peer : members)
        if (peer != rank) lane.wait(peer, written, 1);

    // Sums the contributions and the arrivals of the phases above k, which are the earlier ones.
    const auto sum = [&](std::int64_t begin, std::int64_t size, int k, Place to, bool finish) {
        for (const std::int64_t end = begin + size; begin < end;) {
            std::int64_t count = end - begin;
            std::vector<Place> from;
            for (const int peer : members)
                from.push_back(arrays != nullptr && peer == rank
                                   ? Place{peer, Region::source, begin}
                                   : shared(peer, begin));
            for (int j = phases - 1; j > k; --j) {
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
    for (int k = phases - 1; k >= 0; --k) {
        const Message &message = outgoing[k];
        if (mine < message.slices()) {
            const Place from = places.departure(node, mine, k);
            Place to = from;
            for (const Extent &extent : message.slice(mine)) {
                sum(extent.begin, extent.count, k, to, false);
                to.offset += extent.count;
            }
            lane.wait(there(node - (1 << k)), clear_to_send, 1);
            lane.put(from, places.arrival(node - (1 << k), mine, k), to.offset - from.offset,
                     arrived, 1);
        }
        for (int slice = 0; slice < incoming[k].slices(); ++slice)
            lane.wait(members[slice], forwarded, phases_to(k));
    }
    sum(problem.begin(rank), problem.size(rank), -1,
        arrays != nullptr ? arrays->output(rank) : any.buffers()->output(rank), true);
    if (!alone && arrays != nullptr) schedule.staging = shared(rank, problem.elements()).offset;
    schedule.partial = places.all(node, mine);
    if (schedule.partial > 0 && arrays != nullptr) schedule.partial += arrays->partial.begin;
    // Waits until the buffer and the partial sums may be overwritten.
    if (arrays == nullptr && !alone) {
        lane.signal_node(read, 1);
        for (const int peer : members)
            if (peer != rank) lane.wait(peer, read, 1);
    }
    schedule.lanes.push_back(std::move(lane));
    if (!forward.steps().empty()) schedule.lanes.push_back(std::move(forward));
    return schedule;
}

}  // namespace vescomm::internal::reduce_scatter_v
