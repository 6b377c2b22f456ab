// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>

#include "schedule/algorithms.h"
#include "schedule/lanes.h"

namespace vescomm::all_reduce {

namespace {

enum Flag : std::uint32_t {
    written,  // my contribution can be read
    ready,  // my partial sums may be overwritten (told to the ranks that put into them)
    arrived,  // a put: the sender's sum is among the receiver's partial sums
    summed,  // what the result of my slice is the sum of is among my partial sums
    read,  // I have read all I need
};

// The vector is cut into a slice for each of the first ranks of every node.
class Slices {
public:
    explicit Slices(const Problem &problem)
        : problem_(problem), slices_(slices_for(smallest_node(problem.nodes), problem.elements())) {
        const int nodes = problem.nodes.count();
        doubled_ = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
        rounds_ = std::bit_width(static_cast<unsigned>(doubled_)) - 1;
    }

    int count() const { return slices_; }
    // So many nodes take part in the rounds, a power of two. Each of the others has one of them sum
    // for it.
    int doubled() const { return doubled_; }
    int rounds() const { return rounds_; }

    std::int64_t begin(int slice) const { return problem_.elements() * slice / slices_; }
    std::int64_t size(int slice) const { return begin(slice + 1) - begin(slice); }

    // Among the partial sums of the rank that has the slice: what comes from a node that takes no
    // part, or is the result for one; what comes in each round; and its own sums.
    Place from_outside(int rank, int slice) const { return partial(rank, slice, 0); }
    Place incoming(int rank, int slice, int round) const { return partial(rank, slice, 1 + round); }
    Place sum(int rank, int slice, int n) const { return partial(rank, slice, 1 + rounds_ + n); }
    // Elements of all of these: a sum of its own, one for each round, and one for the node outside.
    std::int64_t partials(int slice) const { return (2 * rounds_ + 3) * size(slice); }

private:
    Place partial(int rank, int slice, int n) const {
        return {rank, Region::partial, problem_.partial.begin + n * size(slice)};
    }

    const Problem &problem_;
    int slices_;
    int doubled_ = 1;
    int rounds_ = 0;
};

}  // namespace

bool can_double(const Problem &problem) {
    if (problem.nodes.count() == 1) return false;
    if (!problem.arrays) return !problem.per_node;
    const Slices slices(problem);
    return problem.elements() <= problem.stage.elements &&
           slices.partials(slices.count() - 1) <= problem.partial.elements;
}

// Doubling: sums of 1, 2, 4, ... nodes are exchanged.
//
//     n0 ◄─► n1   n2 ◄─► n3        round 0
//     n0 ◄─► n2   n1 ◄─► n3        round 1
//     n4 ──► n0,  and n0 ──► n4    before and after, for nodes beyond a power of two
//
// Within a node the first rank sums all contributions; of a longer vector, each of several ranks
// sums a slice of it, and exchanges that with the ranks in its place. Everyone takes the last sum
// for itself. All sums are made in the order of nodes, so all ranks end with the same bits.
//
// Cost: log2(nodes) puts of the vector one after another, and two more where nodes are no power of
// two: best while latencies cost more than bytes.
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", IJHPCA 19(1), 2005, section 4.4; slices in each node are as in their hierarchical forms.
Schedule doubling(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const Slices slices(problem);
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const int mine = nodes.local_rank(rank);  // which slice, if there are so many
    const bool has_slice = mine < slices.count();
    const std::int64_t begin = has_slice ? slices.begin(mine) : 0;
    const std::int64_t size = has_slice ? slices.size(mine) : 0;
    // Whether somebody else reads what this rank has.
    const bool is_read = slices.count() > 1 || !has_slice;
    const auto there = [&](int other) { return nodes.members(other)[mine]; };
    const auto shared = [&](int peer) {
        return problem.arrays ? Place{peer, Region::stage, problem.stage.begin}
                              : Place{peer, Region::buffer, 0};
    };
    const auto own = [&](Region region) {
        return Place{rank, problem.arrays ? region : Region::buffer, 0};
    };
    const auto later = [](Place place, std::int64_t elements) {
        place.offset += elements;
        return place;
    };

    // Who takes part in no round has one for whom it does, and the other way round.
    const bool outside = node >= slices.doubled();
    const int other = outside ? node - slices.doubled() : node + slices.doubled();
    const bool has_other = other < nodes.count();

    Schedule schedule;
    schedule.stage = problem.arrays ? problem.stage.begin + problem.elements() : 0;
    schedule.partial = problem.partial.begin + (has_slice ? slices.partials(mine) : 0);
    Lane &lane = schedule.lanes.emplace_back();
    if (problem.arrays) lane.acquire();
    if (has_slice) {
        if (has_other) lane.signal(there(other), ready, 1);
        for (int k = 0; k < slices.rounds() && !outside; ++k)
            lane.signal(there(node ^ 1 << k), ready, 1);
    }
    if (is_read) {
        if (problem.arrays) {
            lane.copy(own(Region::source), shared(rank), begin);
            const std::int64_t end = begin + size;
            lane.copy(later(own(Region::source), end), later(shared(rank), end),
                      problem.elements() - end);
        }
        lane.signal_node(written, 1);
    }

    if (has_slice) {
        int sums = 0;
        const auto sum = [&] { return slices.sum(rank, mine, sums - 1); };
        const auto add = [&](const std::vector<Place> &from) {
            ++sums;
            lane.reduce(from, sum(), size, false);
        };
        const auto put = [&](int to, Place place) {
            lane.wait(there(to), ready, 1);
            place.rank = there(to);
            lane.put(sum(), place, size, arrived, 1);
        };

        std::vector<Place> contributions;
        for (const int peer : members) {
            if (peer != rank) lane.wait(peer, written, 1);
            contributions.push_back(
                later(peer == rank ? own(Region::source) : shared(peer), begin));
        }
        add(contributions);
        const Place from_outside = slices.from_outside(rank, mine);
        if (outside) put(other, from_outside);
        if (has_other) lane.wait(there(other), arrived, 1);
        if (has_other && !outside) add({sum(), from_outside});
        for (int k = 0; k < slices.rounds() && !outside; ++k) {
            const int peer = node ^ 1 << k;
            put(peer, slices.incoming(rank, mine, k));
            lane.wait(there(peer), arrived, 1);
            // The last one is for everyone to take.
            const bool last = k + 1 == slices.rounds();
            if (last) lane.signal_node(summed, 1);
            if (last && !has_other) break;
            const Place incoming = slices.incoming(rank, mine, k);
            add(node < peer ? std::vector{sum(), incoming} : std::vector{incoming, sum()});
        }
        if (outside) lane.signal_node(summed, 1);
        if (has_other && !outside) put(other, from_outside);
    }

    for (int slice = 0; slice < slices.count(); ++slice) {
        const int peer = members[slice];
        if (peer != rank) lane.wait(peer, summed, 1);
        std::vector<Place> from;
        if (outside) {
            from.push_back(slices.from_outside(peer, slice));
        } else {
            const int k = slices.rounds() - 1;
            from.push_back(slices.sum(peer, slice, has_other ? k + 1 : k));
            from.push_back(slices.incoming(peer, slice, k));
            if ((node >> k & 1) != 0) std::swap(from[0], from[1]);
        }
        lane.reduce(from, later(own(Region::output), slices.begin(slice)), slices.size(slice),
                    true);
    }
    if (problem.arrays || members.size() == 1) return schedule;
    // The partial sums will be overwritten by the next run.
    if (is_read) lane.signal_node(read, 1);
    for (const int peer : members)
        if (has_slice && peer != rank) lane.wait(peer, read, 1);
    return schedule;
}

}  // namespace vescomm::all_reduce
