// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/rails.h"

namespace vescomm::internal::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: chunk k of the contribution of this rank is in its staging buffer
    clear_to_send,  // Plan::sent(), for a rank of another node: it may put this running sum
    arrived,  // raised by a put: a running sum or a result has arrived. For the node, value k + 1:
              // the results of chunk k are among the partial sums of this rank
    read,  // value k + 1: this rank has read chunk k from the staging buffers of its node
    taken,  // value 1: results may be put to this rank; value k + 2: it has copied those of chunk k
};

std::uint32_t count_of(std::int64_t number) {
    return static_cast<std::uint32_t>(number);
}

// The ranks [first, end), which are on one node.
struct Run {
    int first = 0, end = 0;
    int node = 0;
    int place = 0;  // number among the runs of its node
};

// Elements of the vector that are results of one owner.
struct Part {
    int owner = 0;
    std::int64_t begin = 0, count = 0;
};

// Chunks, slices and places, the same on every rank. The vector passes in chunks. Each chunk is cut
// into slices, one for each of the first ranks of every node.
class Plan {
public:
    explicit Plan(const ArrayProblem &problem)
        : problem_(problem),
          nodes_(problem.nodes),
          slices_(slices_for(nodes_.smallest(), problem.elements())) {
        runs_of_node_.assign(static_cast<std::size_t>(nodes_.count()), 0);
        for (int rank = 0; rank < nodes_.ranks(); ++rank) {
            const int node = nodes_.node_of(rank);
            if (runs_.empty() || runs_.back().node != node)
                runs_.push_back({rank, rank, node, runs_of_node_[node]++});
            runs_.back().end = rank + 1;
        }
        // Two slots for each of: the arriving sums of a run, its departing sums, and the results.
        max_runs_ = std::ranges::max(runs_of_node_);
        slice_ = std::min(problem.partial.count / (4 * max_runs_ + 2 * slices_),
                          problem.staging.count / (2 * slices_));
        if (slice_ > 0)
            chunks_ = {problem.elements(), Chunks(problem.elements(), slice_ * slices_).count(),
                       slices_};
    }

    // Maximum elements of a slice.
    std::int64_t slice() const { return slice_; }
    std::int64_t chunks() const { return chunks_.count(); }
    int slices() const { return slices_; }
    const std::vector<Run> &runs() const { return runs_; }
    int runs_of(int node) const { return runs_of_node_[node]; }

    std::int64_t begin(std::int64_t k) const { return chunks_.begin(k); }
    std::int64_t begin(std::int64_t k, int slice) const { return chunks_.begin(k, slice); }
    std::int64_t size(std::int64_t k, int slice) const { return chunks_.size(k, slice); }
    // The parts of a slice, by owner.
    std::vector<Part> parts(std::int64_t k, int slice) const {
        std::vector<Part> parts;
        const std::int64_t end = begin(k, slice + 1);
        std::int64_t at = begin(k, slice);
        const auto owner = std::ranges::upper_bound(problem_.cuts, at) - problem_.cuts.begin() - 1;
        for (int rank = static_cast<int>(owner); at < end; ++rank) {
            const std::int64_t size = std::min(problem_.cuts[rank + 1], end) - at;
            if (size > 0) parts.push_back({rank, at, size});
            at += size;
        }
        return parts;
    }
    // The part of a slice for one owner; may be empty.
    Part part(std::int64_t k, int slice, int owner) const {
        const std::int64_t from = std::max(begin(k, slice), problem_.begin(owner));
        const std::int64_t to = std::min(begin(k, slice + 1), problem_.cuts[owner + 1]);
        return {owner, from, std::max<std::int64_t>(0, to - from)};
    }
    // True if a chunk has elements for an owner; false for negative k.
    bool has_part(std::int64_t k, int owner) const {
        return k >= 0 && k < chunks() && problem_.size(owner) > 0 &&
               problem_.begin(owner) < begin(k + 1) && problem_.cuts[owner + 1] > begin(k);
    }

    // The rank that makes the sums of a slice on a node.
    int worker(int node, int slice) const { return nodes_.members(node)[slice]; }
    // Flag value of the put of a worker for a run and a chunk.
    std::uint32_t sent(std::int64_t k, const Run &run) const {
        return count_of(k * runs_of(run.node) + run.place + 1);
    }
    Place staged(int rank, std::int64_t k, std::int64_t begin) const {
        return {rank, Region::staging,
                problem_.staging.begin + k % 2 * slice_ * slices_ + begin - this->begin(k)};
    }
    Place incoming(int worker, const Run &run, std::int64_t k) const {
        return partial(worker, (2 * run.place + k % 2) * slice_);
    }
    Place outgoing(int worker, const Run &run, std::int64_t k) const {
        return partial(worker, (2 * max_runs_ + 2 * run.place + k % 2) * slice_);
    }
    // Place of a result that is put to its owner on another node.
    Place result(std::int64_t k, const Part &part) const {
        return partial(part.owner,
                       (4 * max_runs_ + k % 2 * slices_) * slice_ + part.begin - begin(k));
    }

private:
    Place partial(int rank, std::int64_t offset) const {
        return {rank, Region::partial, problem_.partial.begin + offset};
    }

    const ArrayProblem &problem_;
    const Nodes &nodes_;
    int slices_;
    std::vector<Run> runs_;
    std::vector<int> runs_of_node_;
    std::int64_t max_runs_ = 1;
    std::int64_t slice_ = 0;  // elements
    SlicedChunks chunks_;
};

class Chain {
public:
    Chain(const ArrayProblem &problem, int rank)
        : problem_(problem),
          nodes_(problem.nodes),
          plan_(problem),
          rank_(rank),
          node_(nodes_.node_of(rank)),
          mine_(nodes_.local_rank(rank)),
          members_(nodes_.members(node_)),
          last_(plan_.runs().back()) {
        for (const Run &run : plan_.runs())
            if (run.node == node_) runs_.push_back(&run);
        // True if another rank reads the staged contribution of this rank.
        is_read_ = plan_.slices() > 1 || mine_ > 0;
    }

    Schedule make() {
        Schedule schedule;
        schedule.staging = problem_.staging.begin + problem_.staging.count;
        schedule.partial = problem_.partial.begin + problem_.partial.count;
        Lane &lane = schedule.lanes.emplace_back();
        lane.acquire();
        if (mine_ < plan_.slices()) clear_to_put(lane);
        for (std::int64_t k = 0; k < plan_.chunks(); ++k) {
            if (is_read_) write(lane, k);
            if (mine_ < plan_.slices()) sum(lane, k);
        }
        if (problem_.size(rank_) == 0) return schedule;
        // The first lane ends last, as join_schedules() requires.
        lane.wait(rank_, taken, count_of(plan_.chunks() + 2));
        schedule.lanes.push_back(take());
        return schedule;
    }

private:
    const Run &before(const Run &run) const { return *(&run - 1); }
    const Run &after(const Run &run) const { return *(&run + 1); }
    bool is_last(const Run &run) const { return &run == &last_; }
    bool again(std::int64_t k) const { return k + 2 < plan_.chunks(); }

    // The slots of the first two chunks are always free.
    void clear_to_put(Lane &lane) const {
        const std::int64_t chunks = std::min<std::int64_t>(2, plan_.chunks());
        std::vector<int> signalled;
        for (const Run *run : runs_) {
            if (run->first == 0 || chunks == 0) continue;
            const int node = before(*run).node;
            if (std::ranges::find(signalled, node) != signalled.end()) continue;
            lane.signal(plan_.worker(node, mine_), clear_to_send,
                        count_of(chunks * plan_.runs_of(node)));
            signalled.push_back(node);
        }
    }

    // Writes chunk k of the contribution to the staging buffer.
    void write(Lane &lane, std::int64_t k) const {
        for (int slice = 0; slice < plan_.slices() && k >= 2; ++slice)
            if (slice != mine_) lane.wait(members_[slice], read, count_of(k - 1));
        // The slice that this rank sums itself is not copied.
        const bool sums = mine_ < plan_.slices();
        const std::int64_t begin = plan_.begin(k), end = plan_.begin(k + 1);
        const std::int64_t own = sums ? plan_.begin(k, mine_) : end;
        const std::int64_t rest = sums ? plan_.begin(k, mine_ + 1) : end;
        const auto copy = [&](std::int64_t from, std::int64_t to) {
            lane.copy({rank_, Region::source, from}, plan_.staged(rank_, k, from), to - from);
        };
        copy(begin, own);
        copy(rest, end);
        lane.signal_node(written, count_of(k + 1));
    }

    // Makes the running sums of the slice of this rank, for all runs of its node.
    void sum(Lane &lane, std::int64_t k) const {
        const std::int64_t begin = plan_.begin(k, mine_), size = plan_.size(k, mine_);
        for (const Run *run : runs_) {
            std::vector<Place> from;
            if (run->first > 0) {
                lane.wait(plan_.worker(before(*run).node, mine_), arrived,
                          plan_.sent(k, before(*run)));
                from.push_back(plan_.incoming(rank_, *run, k));
            }
            for (int rank = run->first; rank < run->end; ++rank) {
                if (rank != rank_) lane.wait(rank, written, count_of(k + 1));
                from.push_back(rank == rank_ ? Place{rank_, Region::source, begin}
                                             : plan_.staged(rank, k, begin));
            }
            const Place to = plan_.outgoing(rank_, *run, k);
            // The sum of chunk k - 2 has left this slot when its receiver is ready for chunk k.
            if (is_last(*run)) wait_until_taken(lane, k);
            else if (k >= 2) wait_until_clear(lane, k, *run);
            lane.reduce(from, to, size, false);
            if (run->first > 0 && again(k))
                lane.signal(plan_.worker(before(*run).node, mine_), clear_to_send,
                            plan_.sent(k + 2, before(*run)));
            if (is_last(*run)) {
                send_results(lane, k);
            } else {
                if (k < 2) wait_until_clear(lane, k, *run);
                lane.put(to, plan_.incoming(plan_.worker(after(*run).node, mine_), after(*run), k),
                         size, arrived, plan_.sent(k, *run));
            }
        }
        if (members_.size() > 1 && again(k)) lane.signal_node(read, count_of(k + 1));
    }

    void wait_until_clear(Lane &lane, std::int64_t k, const Run &run) const {
        lane.wait(plan_.worker(after(run).node, mine_), clear_to_send, plan_.sent(k, run));
    }

    void wait_until_taken(Lane &lane, std::int64_t k) const {
        if (k < 2) return;
        for (const Part &part : plan_.parts(k - 2, mine_))
            lane.wait(part.owner, taken, count_of(k));
    }

    // Sends the sums of the last run, which are results, to their owners.
    void send_results(Lane &lane, std::int64_t k) const {
        const std::vector<Part> parts = plan_.parts(k, mine_);
        lane.signal_node(arrived, count_of(k + 1));
        for (const Part &part : parts) {
            if (nodes_.together(part.owner, rank_)) continue;
            lane.wait(part.owner, taken, plan_.has_part(k - 2, part.owner) ? count_of(k) : 1);
            lane.put(summed(k, mine_, part), plan_.result(k, part), part.count, arrived,
                     plan_.sent(k, last_));
        }
    }

    // Place of a result on the last node.
    Place summed(std::int64_t k, int slice, const Part &part) const {
        Place place = plan_.outgoing(plan_.worker(last_.node, slice), last_, k);
        place.offset += part.begin - plan_.begin(k, slice);
        return place;
    }

    // Copies the results of this rank to its output.
    Lane take() const {
        Lane lane;
        lane.acquire();
        const bool is_there = node_ == last_.node;
        const auto any_part = [&](std::int64_t k, int slice) {
            return plan_.has_part(k, rank_) && plan_.part(k, slice, rank_).count > 0;
        };
        const auto signal = [&](std::uint32_t value, std::int64_t k, std::int64_t other) {
            for (int slice = 0; slice < plan_.slices(); ++slice)
                if (any_part(k, slice) || any_part(other, slice))
                    lane.signal(plan_.worker(last_.node, slice), taken, value);
        };
        std::int64_t first = 0;
        while (!plan_.has_part(first, rank_)) ++first;
        for (int slice = 0; slice < plan_.slices() && !is_there; ++slice) {
            bool any = false;
            for (std::int64_t k = first; plan_.has_part(k, rank_) && !any; ++k)
                any = any_part(k, slice);
            if (any) lane.signal(plan_.worker(last_.node, slice), taken, 1);
        }
        for (std::int64_t k = first; plan_.has_part(k, rank_); ++k) {
            for (int slice = 0; slice < plan_.slices(); ++slice) {
                const Part part = plan_.part(k, slice, rank_);
                if (part.count == 0) continue;
                lane.wait(plan_.worker(last_.node, slice), arrived,
                          is_there ? count_of(k + 1) : plan_.sent(k, last_));
                const Place from = is_there ? summed(k, slice, part) : plan_.result(k, part);
                Place to = problem_.output(rank_);
                to.offset += part.begin - problem_.begin(rank_);
                lane.reduce(std::span(&from, 1), to, part.count, true);
            }
            if (!again(k)) continue;
            if (is_there) lane.signal_node(taken, count_of(k + 2));
            else signal(count_of(k + 2), k, k + 2);
        }
        lane.signal_node(taken, count_of(plan_.chunks() + 2));
        return lane;
    }

    const ArrayProblem &problem_;
    const Nodes &nodes_;
    Plan plan_;
    int rank_, node_, mine_;
    std::span<const int> members_;
    const Run &last_;  // the last run
    std::vector<const Run *> runs_;  // of this node
    bool is_read_ = false;
};

}  // namespace

bool can_chain(const ArrayProblem &problem) {
    return problem.nodes.count() > 1 && Plan(problem).slice() > 0;
}

// Chain: running sums pass through the nodes in the order of ranks.
//
//     node A            node B            node C
//     0 + 1 ────sum───► + 2 + 3 ───sum──► + 4 + 5 ───results───► owners
//
// Contributions to an element are added one after another, in the order of ranks, as a single rank
// would add them. So the bits of the result depend only on the contributions. The vector passes in
// chunks, and nodes work on different chunks at the same time. A long vector is cut into slices,
// which several ranks of a node sum. With cyclic placement a sum visits a node once for each run of
// consecutive ranks there.
//
// Cost: one latency for each node, one after another. Every node but the last sends the vector
// once, as partial sums, and the last one sends the results. With many chunks the time is that of
// the vector through one link.
// Source: the pipelined chain of broadcast, backwards (Sanders, Speck, Traeff, "Two-tree algorithms
// for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009, section 2).
Schedule chain(const ArrayProblem &problem, int rank) {
    return Chain(problem, rank).make();
}

}  // namespace vescomm::internal::reduce_scatter_v
