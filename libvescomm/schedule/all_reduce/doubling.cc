// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>

#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::all_reduce {

namespace {

enum Flag : std::uint32_t {
    // Values count chunks, from 1 on.
    written,  // my contribution can be read
    ready,  // my partial sums may be overwritten (told to the ranks that put into them)
    arrived,  // a put: the sender's sum is among the receiver's partial sums
    summed,  // what the result of my slice is the sum of is among my partial sums
    read,  // I have read all I need
};

// A power of two of nodes takes part in the rounds. Each of the others has one of these sum for it.
int doubled(const Nodes &nodes) {
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes.count())));
}

int phases_of(const Nodes &nodes) {
    return std::bit_width(static_cast<unsigned>(doubled(nodes))) - 1;
}

// Partial sums of a slice: a sum of its own, one more and an arrival for each round, and the same
// for a node that takes no part.
int sums_of(const Nodes &nodes) {
    return 2 * phases_of(nodes) + 3;
}

// Elements that can be summed at once; as many chunks as needed follow one another. They are of
// the same size on up to 2^15 nodes, so times of few nodes tell those of many.
std::int64_t max_at_once(const Problem &problem) {
    if (!problem.arrays) return problem.elements();
    const std::int64_t slice = problem.partial.count / std::max(31, sums_of(problem.nodes));
    // In shorter vectors slices may be longer than a rank's part.
    const int slices = slice < 2 * min_slice ? 1 : smallest_node(problem.nodes);
    return std::min(problem.staging.count, slice * slices);
}

// A chunk of the vector is cut into a slice for each of the first ranks of every node.
class Slices {
public:
    Slices(const Problem &problem, std::int64_t begin, std::int64_t elements)
        : problem_(problem),
          begin_(begin),
          elements_(elements),
          slices_(slices_for(smallest_node(problem.nodes), elements)),
          rounds_(phases_of(problem.nodes)) {}

    int count() const { return slices_; }
    // In the chunk, and in the vector.
    std::int64_t offset(int slice) const { return elements_ * slice / slices_; }
    std::int64_t begin(int slice) const { return begin_ + offset(slice); }
    std::int64_t size(int slice) const { return offset(slice + 1) - offset(slice); }

    // Among the partial sums of the rank that has the slice: what comes from a node that takes no
    // part, or is the result for one; what comes in each round; and its own sums.
    Place from_outside(int rank, int slice) const { return partial(rank, slice, 0); }
    Place incoming(int rank, int slice, int round) const { return partial(rank, slice, 1 + round); }
    Place sum(int rank, int slice, int n) const { return partial(rank, slice, 1 + rounds_ + n); }

private:
    Place partial(int rank, int slice, int n) const {
        return {rank, Region::partial, problem_.partial.begin + n * size(slice)};
    }

    const Problem &problem_;
    std::int64_t begin_, elements_;
    int slices_;
    int rounds_;
};

}  // namespace

bool can_double(const Problem &problem) {
    if (problem.nodes.count() == 1) return false;
    return problem.arrays ? max_at_once(problem) > 0 : !problem.per_node;
}

// Doubling: sums of 1, 2, 4, ... nodes are exchanged.
//
//     n0 ◄─► n1   n2 ◄─► n3        round 0
//     n0 ◄─► n2   n1 ◄─► n3        round 1
//     n4 ──► n0,  and n0 ──► n4    before and after, for nodes beyond a power of two
//
// Within a node the first rank sums all contributions; of a longer vector, each of several ranks
// sums a slice of it, and exchanges that with the ranks in its place. Everyone takes the last sum
// for itself. All sums are made in the order of nodes, so all ranks end with the same bits. Arrays
// are summed chunk by chunk, as the staging buffer and the partial sums have room.
//
// Cost: log2(nodes) puts of the vector one after another, and two more where nodes are no power of
// two: best while latencies cost more than bytes.
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", IJHPCA 19(1), 2005, section 4.4; slices in each node are as in their hierarchical forms.
Schedule doubling(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank), mine = nodes.local_rank(rank);
    const auto members = nodes.members(node);
    const auto there = [&](int other) { return nodes.members(other)[mine]; };
    const auto own = [&](Region region, std::int64_t begin) {
        return Place{rank, problem.arrays ? region : Region::buffer, begin};
    };

    // Who takes part in no round has one for whom it does, and the other way round.
    const int rounds = phases_of(nodes);
    const bool outside = node >= doubled(nodes);
    const int other = outside ? node - doubled(nodes) : node + doubled(nodes);
    const bool has_other = other < nodes.count();
    std::vector<int> partners;
    if (has_other) partners.push_back(other);
    for (int k = 0; k < rounds && !outside; ++k) partners.push_back(node ^ 1 << k);

    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    if (problem.arrays) lane.acquire();
    const std::int64_t max = max_at_once(problem);
    const std::int64_t chunks = problem.elements() == 0 ? 0 : (problem.elements() + max - 1) / max;
    for (std::int64_t w = 0; w < chunks; ++w) {
        const std::int64_t begin = problem.elements() * w / chunks;
        const std::int64_t end = problem.elements() * (w + 1) / chunks;
        const auto value = static_cast<std::uint32_t>(w) + 1;
        const bool again = w + 1 < chunks;
        const Slices slices(problem, begin, end - begin);
        const bool has_slice = mine < slices.count();
        // Whether somebody else reads what this rank has.
        const bool is_read = slices.count() > 1 || !has_slice;
        const auto shared = [&](int peer, std::int64_t offset) {
            return problem.arrays ? Place{peer, Region::staging, problem.staging.begin + offset}
                                  : Place{peer, Region::buffer, begin + offset};
        };

        // Partners put to each other, so what little one puts may come early.
        const bool eager = w == 0 && slices.size(mine) <= max_eager_elements;
        if (has_slice)
            for (const int partner : partners) lane.signal(there(partner), ready, value, eager);
        if (is_read) {
            if (problem.arrays) {
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
            schedule.partial =
                std::max(schedule.partial, problem.partial.begin + sums_of(nodes) * size);
            int sums = 0;
            const auto sum = [&] { return slices.sum(rank, mine, sums - 1); };
            const auto add = [&](const std::vector<Place> &from) {
                ++sums;
                lane.reduce(from, sum(), size, false);
            };
            const auto put = [&](int to, Place place) {
                if (w == 0) lane.wait(there(to), ready, value, eager);
                place.rank = there(to);
                lane.put(sum(), place, size, arrived, value);
            };

            // Whoever is ready for this chunk has got the sums of the last one, which are
            // overwritten now.
            for (const int partner : partners)
                if (w > 0) lane.wait(there(partner), ready, value);
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
            for (int k = 0; k < rounds && !outside; ++k) {
                const int peer = node ^ 1 << k;
                const Place incoming = slices.incoming(rank, mine, k);
                put(peer, incoming);
                lane.wait(there(peer), arrived, value);
                // The last one is for everyone to take.
                const bool last = k + 1 == rounds;
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
                from.push_back(slices.sum(peer, slice, has_other ? rounds : rounds - 1));
                from.push_back(slices.incoming(peer, slice, rounds - 1));
                if ((node >> (rounds - 1) & 1) != 0) std::swap(from[0], from[1]);
            }
            lane.reduce(from, own(Region::output, slices.begin(slice)), slices.size(slice), true);
        }
        // The partial sums will be overwritten: by the next chunk, or in the next run. Arrays wait
        // for that with acquire.
        if (members.size() == 1 || (problem.arrays && !again)) continue;
        if (is_read) lane.signal_node(read, value);
        for (const int peer : members)
            if (has_slice && peer != rank) lane.wait(peer, read, value);
    }
    return schedule;
}

}  // namespace vescomm::all_reduce
