// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/rails.h"

namespace vescomm::internal::all_reduce {

namespace {

enum Flag : std::uint32_t {
    // Values count chunks, from 1 on.
    written,  // the contribution of this rank can be read
    clear_to_send,  // for a rank of another node: the partial sums may be overwritten
    arrived,  // raised by a put: the sender's sum is among the receiver's partial sums
    summed,  // the partial sums of this rank hold all summands of its slice
    read,  // this rank has read all data it needs
};

// Number of nodes that take part in the phases: a power of two. Each other node sends its sum to
// one of them and gets the result from it.
int doubled(const Nodes &nodes) {
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes.count())));
}

int phases_of(const Nodes &nodes) {
    return std::bit_width(static_cast<unsigned>(doubled(nodes))) - 1;
}

// Partial sums of a slice: the sum of the node, a sum and an arrival for each phase, and both for a
// node that takes no part.
int sums_of(const Nodes &nodes) {
    return 2 * phases_of(nodes) + 3;
}

// Maximum elements of a chunk. It is constant for up to 2^15 nodes, so that the simulator can
// extrapolate times from few nodes to many.
std::int64_t max_at_once(const AnyProblem &any) {
    if (any.buffers()) return any->elements();
    const ArrayProblem &problem = *any.arrays();
    const std::int64_t slice = problem.partial.count / std::max(31, sums_of(problem.nodes));
    // Short vectors are cut into fewer, longer slices.
    const int slices = slice < 2 * min_slice ? 1 : problem.nodes.smallest();
    return std::min(problem.staging.count, slice * slices);
}

// A chunk of the vector is cut into a slice for each of the first ranks of every node.
class Slices {
public:
    // The chunk is [begin, begin + elements). `partial`: begin of the partial sums that the
    // algorithm may use.
    Slices(const Nodes &nodes, std::int64_t begin, std::int64_t elements, std::int64_t partial)
        : begin_(begin),
          elements_(elements),
          partial_(partial),
          slices_(slices_for(nodes.smallest(), elements)),
          phases_(phases_of(nodes)) {}

    int count() const { return slices_; }
    // Offset of a slice in the chunk.
    std::int64_t offset(int slice) const { return slice_begin(elements_, slice, slices_); }
    // Offset of a slice in the vector.
    std::int64_t begin(int slice) const { return begin_ + offset(slice); }
    std::int64_t size(int slice) const { return offset(slice + 1) - offset(slice); }

    // Places among the partial sums of the rank that has the slice: the sum of a node that takes no
    // part, or the result for it; the arrival of each phase; the sums that this rank makes.
    Place from_outside(int rank, int slice) const { return partial(rank, slice, 0); }
    Place incoming(int rank, int slice, int phase) const { return partial(rank, slice, 1 + phase); }
    Place sum(int rank, int slice, int n) const { return partial(rank, slice, 1 + phases_ + n); }

private:
    Place partial(int rank, int slice, int n) const {
        return {rank, Region::partial, partial_ + n * size(slice)};
    }

    std::int64_t begin_, elements_;
    std::int64_t partial_;
    int slices_;
    int phases_;
};

}  // namespace

bool can_double(const AnyProblem &problem) {
    if (problem->nodes.count() == 1) return false;
    const BufferProblem *buffers = problem.buffers();
    return buffers != nullptr ? !buffers->per_node : max_at_once(problem) > 0;
}

// Doubling: sums of 1, 2, 4, ... nodes are exchanged.
//
//     n0 ◄─► n1   n2 ◄─► n3        phase 0
//     n0 ◄─► n2   n1 ◄─► n3        phase 1
//     n4 ──► n0,  and n0 ──► n4    before and after, for nodes beyond a power of two
//
// Within a node the first rank sums all contributions. A longer vector is cut into slices: each of
// several ranks sums one slice and exchanges it with the same local rank of other nodes. Every rank
// makes the last sum for itself. All sums are made in the order of nodes, so all ranks end with the
// same bits. Arrays are summed in chunks that fit the staging buffer and the partial sums.
//
// Cost: log2(nodes) puts of the vector one after another, and two more if the number of nodes is
// not a power of two. Best while latencies cost more than bytes.
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", IJHPCA 19(1), 2005, section 4.4; the slices in each node are as in their hierarchical
// variants.
Schedule doubling(const AnyProblem &any, int rank) {
    const Problem &problem = *any;
    const ArrayProblem *arrays = any.arrays();
    const std::int64_t partial = arrays != nullptr ? arrays->partial.begin : 0;
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const auto there = [&](int other) { return nodes.members(other)[mine]; };
    const auto own = [&](Region region, std::int64_t begin) {
        return Place{rank, arrays != nullptr ? region : Region::buffer, begin};
    };

    // `other` is the node that takes part for this one, or the node for which this one takes part.
    const int phases = phases_of(nodes);
    const bool outside = node >= doubled(nodes);
    const int other = outside ? node - doubled(nodes) : node + doubled(nodes);
    const bool has_other = other < nodes.count();
    std::vector<int> partners;
    if (has_other) partners.push_back(other);
    for (int k = 0; k < phases && !outside; ++k) partners.push_back(node ^ 1 << k);

    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    if (arrays != nullptr) lane.acquire();
    const std::int64_t max = max_at_once(any);
    const std::int64_t chunks =
        problem.elements() == 0 ? 0 : Chunks(problem.elements(), max).count();
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const std::int64_t begin = slice_begin(problem.elements(), chunk, chunks);
        const std::int64_t end = slice_begin(problem.elements(), chunk + 1, chunks);
        const auto value = static_cast<std::uint32_t>(chunk) + 1;
        const bool again = chunk + 1 < chunks;
        const Slices slices(nodes, begin, end - begin, partial);
        const bool has_slice = mine < slices.count();
        // True if another rank reads the contribution of this rank.
        const bool is_read = slices.count() > 1 || !has_slice;
        const auto shared = [&](int peer, std::int64_t offset) {
            return arrays != nullptr ? Place{peer, Region::staging, arrays->staging.begin + offset}
                                     : Place{peer, Region::buffer, begin + offset};
        };

        // Partners put to each other, so small puts may be eager.
        const bool eager = chunk == 0 && slices.size(mine) <= max_eager_elements;
        if (has_slice)
            for (const int partner : partners)
                lane.signal(there(partner), clear_to_send, value, eager);
        if (is_read) {
            if (arrays != nullptr) {
                const std::int64_t first = has_slice ? slices.offset(mine) : 0;
                const std::int64_t second = has_slice ? slices.offset(mine + 1) : 0;
                lane.copy(own(Region::source, begin), shared(rank, 0), first);
                lane.copy(own(Region::source, begin + second), shared(rank, second),
                          end - begin - second);
                schedule.staging = std::max(schedule.staging, shared(rank, end - begin).offset);
            }
            lane.signal_node(written, value);
        }

        if (has_slice) {
            const std::int64_t size = slices.size(mine);
            schedule.partial = std::max(schedule.partial, partial + sums_of(nodes) * size);
            int sums = 0;
            const auto sum = [&] { return slices.sum(rank, mine, sums - 1); };
            const auto add = [&](const std::vector<Place> &from) {
                ++sums;
                lane.reduce(from, sum(), size, false);
            };
            const auto put = [&](int to, Place place) {
                if (chunk == 0) lane.wait(there(to), clear_to_send, value, eager);
                place.rank = there(to);
                lane.put(sum(), place, size, arrived, value);
            };

            // A partner that is ready for this chunk has received the sums of the last one, which
            // are overwritten now.
            for (const int partner : partners)
                if (chunk > 0) lane.wait(there(partner), clear_to_send, value);
            std::vector<Place> contributions;
            for (const int peer : members) {
                if (peer != rank) lane.wait(peer, written, value);
                contributions.push_back(peer == rank ? own(Region::source, slices.begin(mine))
                                                     : shared(peer, slices.offset(mine)));
            }
            add(contributions);
            const Place from_outside = slices.from_outside(rank, mine);
            if (outside) put(other, from_outside);
            if (has_other) lane.wait(there(other), arrived, value);
            if (has_other && !outside) add({sum(), from_outside});
            for (int k = 0; k < phases && !outside; ++k) {
                const int peer = node ^ 1 << k;
                const Place incoming = slices.incoming(rank, mine, k);
                put(peer, incoming);
                lane.wait(there(peer), arrived, value);
                // All ranks of the node make the last sum.
                const bool last = k + 1 == phases;
                if (last) lane.signal_node(summed, value);
                if (last && !has_other) break;
                add(node < peer ? std::vector{sum(), incoming} : std::vector{incoming, sum()});
            }
            if (outside) lane.signal_node(summed, value);
            if (has_other && !outside) put(other, from_outside);
        }

        for (int slice = 0; slice < slices.count(); ++slice) {
            const int peer = members[slice];
            if (peer != rank) lane.wait(peer, summed, value);
            std::vector<Place> from;
            if (outside) {
                from.push_back(slices.from_outside(peer, slice));
            } else {
                from.push_back(slices.sum(peer, slice, has_other ? phases : phases - 1));
                from.push_back(slices.incoming(peer, slice, phases - 1));
                if ((node >> (phases - 1) & 1) != 0) std::swap(from[0], from[1]);
            }
            lane.reduce(from, own(Region::output, slices.begin(slice)), slices.size(slice), true);
        }
        // The next chunk or the next run overwrites the partial sums. For arrays the acquire of the
        // next run waits instead.
        if (members.size() == 1 || (arrays != nullptr && !again)) continue;
        if (is_read) lane.signal_node(read, value);
        for (const int peer : members)
            if (has_slice && peer != rank) lane.wait(peer, read, value);
    }
    return schedule;
}

}  // namespace vescomm::internal::all_reduce
