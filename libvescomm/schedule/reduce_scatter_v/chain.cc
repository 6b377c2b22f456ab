// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: round k of my contribution is in my stage
    ready,  // I can take a running sum (told to the rank that puts it)
    arrived,  // a put: it brings a running sum, or a result. Told to my node: value k + 1, the
              // results of round k are among my partial sums
    read,  // value k + 1: I have read round k from the stages of my node
    taken,  // value 1: I can take results; value k + 2: I have taken those of round k
};

std::uint32_t count_of(std::int64_t number) {
    return static_cast<std::uint32_t>(number);
}

// Ranks that follow one another and share a node.
struct Run {
    int first = 0, end = 0;
    int node = 0;
    int place = 0;  // among the runs of its node
};

// Elements of the vector, and whose result they are.
struct Part {
    int owner = 0;
    std::int64_t begin = 0, count = 0;
};

// What all ranks know alike. The vector passes in rounds; each is cut into a slice for each of the
// first ranks of every node.
class Plan {
public:
    explicit Plan(const Problem &problem)
        : problem_(problem),
          nodes_(problem.nodes),
          slices_(slices_for(smallest_node(nodes_), problem.elements())) {
        runs_of_node_.assign(static_cast<std::size_t>(nodes_.count()), 0);
        for (int rank = 0; rank < nodes_.ranks(); ++rank) {
            const int node = nodes_.node_of(rank);
            if (runs_.empty() || runs_.back().node != node)
                runs_.push_back({rank, rank, node, runs_of_node_[node]++});
            runs_.back().end = rank + 1;
        }
        // Two rounds of each run's sums, as they come and as they go, and of results.
        max_runs_ = std::ranges::max(runs_of_node_);
        slice_ = std::min(problem.partial.count / (4 * max_runs_ + 2 * slices_),
                          problem.staging.count / (2 * slices_));
        if (slice_ > 0) rounds_ = (problem.elements() + slice_ * slices_ - 1) / (slice_ * slices_);
    }

    std::int64_t slice() const { return slice_; }
    std::int64_t rounds() const { return rounds_; }
    int slices() const { return slices_; }
    const std::vector<Run> &runs() const { return runs_; }
    int runs_of(int node) const { return runs_of_node_[node]; }

    std::int64_t begin(std::int64_t round) const { return problem_.elements() * round / rounds_; }
    std::int64_t begin(std::int64_t round, int slice) const {
        const std::int64_t size = begin(round + 1) - begin(round);
        return begin(round) + size * slice / slices_;
    }
    std::int64_t size(std::int64_t round, int slice) const {
        return begin(round, slice + 1) - begin(round, slice);
    }
    // The parts of a slice, by owner.
    std::vector<Part> parts(std::int64_t round, int slice) const {
        std::vector<Part> parts;
        const std::int64_t end = begin(round, slice + 1);
        std::int64_t at = begin(round, slice);
        const auto owner = std::ranges::upper_bound(problem_.cuts, at) - problem_.cuts.begin() - 1;
        for (int rank = static_cast<int>(owner); at < end; ++rank) {
            const std::int64_t size = std::min(problem_.cuts[rank + 1], end) - at;
            if (size > 0) parts.push_back({rank, at, size});
            at += size;
        }
        return parts;
    }
    // What a slice has for one owner; maybe nothing.
    Part part(std::int64_t round, int slice, int owner) const {
        const std::int64_t from = std::max(begin(round, slice), problem_.begin(owner));
        const std::int64_t to = std::min(begin(round, slice + 1), problem_.cuts[owner + 1]);
        return {owner, from, std::max<std::int64_t>(0, to - from)};
    }
    // Whether a round has anything for an owner. There is none before the first.
    bool has_part(std::int64_t round, int owner) const {
        return round >= 0 && round < rounds_ && problem_.size(owner) > 0 &&
               problem_.begin(owner) < begin(round + 1) && problem_.cuts[owner + 1] > begin(round);
    }

    // Who makes the sums of a slice on a node.
    int worker(int node, int slice) const { return nodes_.members(node)[slice]; }
    // Of a put by a worker: what it sends of a run in a round.
    std::uint32_t sent(std::int64_t round, const Run &run) const {
        return count_of(round * runs_of(run.node) + run.place + 1);
    }
    Place staged(int rank, std::int64_t round, std::int64_t begin) const {
        return {rank, Region::staging,
                problem_.staging.begin + round % 2 * slice_ * slices_ + begin - this->begin(round)};
    }
    Place incoming(int worker, const Run &run, std::int64_t round) const {
        return partial(worker, (2 * run.place + round % 2) * slice_);
    }
    Place outgoing(int worker, const Run &run, std::int64_t round) const {
        return partial(worker, (2 * max_runs_ + 2 * run.place + round % 2) * slice_);
    }
    // What comes to an owner from another node.
    Place result(std::int64_t round, const Part &part) const {
        return partial(part.owner,
                       (4 * max_runs_ + round % 2 * slices_) * slice_ + part.begin - begin(round));
    }

private:
    Place partial(int rank, std::int64_t offset) const {
        return {rank, Region::partial, problem_.partial.begin + offset};
    }

    const Problem &problem_;
    const Nodes &nodes_;
    int slices_;
    std::vector<Run> runs_;
    std::vector<int> runs_of_node_;
    std::int64_t max_runs_ = 1;
    std::int64_t slice_ = 0;  // elements
    std::int64_t rounds_ = 0;
};

class Chain {
public:
    Chain(const Problem &problem, int rank)
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
        // Whether anyone else reads what this rank stages.
        is_read_ = plan_.slices() > 1 || mine_ > 0;
    }

    Schedule make() {
        Schedule schedule;
        schedule.staging = problem_.staging.begin + problem_.staging.count;
        schedule.partial = problem_.partial.begin + problem_.partial.count;
        Lane &lane = schedule.lanes.emplace_back();
        lane.acquire();
        if (mine_ < plan_.slices()) say_ready(lane);
        for (std::int64_t k = 0; k < plan_.rounds(); ++k) {
            if (is_read_) staging(lane, k);
            if (mine_ < plan_.slices()) sum(lane, k);
        }
        if (problem_.size(rank_) == 0) return schedule;
        // The first lane is at its end when all of this rank is.
        lane.wait(rank_, taken, count_of(plan_.rounds() + 2));
        schedule.lanes.push_back(take());
        return schedule;
    }

private:
    const Run &before(const Run &run) const { return *(&run - 1); }
    const Run &after(const Run &run) const { return *(&run + 1); }
    bool is_last(const Run &run) const { return &run == &last_; }
    bool again(std::int64_t k) const { return k + 2 < plan_.rounds(); }

    // The first two rounds can come in any case.
    void say_ready(Lane &lane) const {
        const std::int64_t rounds = std::min<std::int64_t>(2, plan_.rounds());
        std::vector<int> told;
        for (const Run *run : runs_) {
            if (run->first == 0 || rounds == 0) continue;
            const int node = before(*run).node;
            if (std::ranges::find(told, node) != told.end()) continue;
            lane.signal(plan_.worker(node, mine_), ready, count_of(rounds * plan_.runs_of(node)));
            told.push_back(node);
        }
    }

    void staging(Lane &lane, std::int64_t k) const {
        for (int slice = 0; slice < plan_.slices() && k >= 2; ++slice)
            if (slice != mine_) lane.wait(members_[slice], read, count_of(k - 1));
        // But for the slice that this rank sums itself.
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

    // This rank's slice of the running sums of its node.
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
            // What was here two rounds ago has left when whoever got it can take more.
            if (is_last(*run)) wait_until_taken(lane, k);
            else if (k >= 2) wait_until_ready(lane, k, *run);
            lane.reduce(from, to, size, false);
            if (run->first > 0 && again(k))
                lane.signal(plan_.worker(before(*run).node, mine_), ready,
                            plan_.sent(k + 2, before(*run)));
            if (is_last(*run)) {
                hand_out(lane, k);
            } else {
                if (k < 2) wait_until_ready(lane, k, *run);
                lane.put(to, plan_.incoming(plan_.worker(after(*run).node, mine_), after(*run), k),
                         size, arrived, plan_.sent(k, *run));
            }
        }
        if (members_.size() > 1 && again(k)) lane.signal_node(read, count_of(k + 1));
    }

    void wait_until_ready(Lane &lane, std::int64_t k, const Run &run) const {
        lane.wait(plan_.worker(after(run).node, mine_), ready, plan_.sent(k, run));
    }

    void wait_until_taken(Lane &lane, std::int64_t k) const {
        if (k < 2) return;
        for (const Part &part : plan_.parts(k - 2, mine_))
            lane.wait(part.owner, taken, count_of(k));
    }

    // The sums of the last run are results.
    void hand_out(Lane &lane, std::int64_t k) const {
        const std::vector<Part> parts = plan_.parts(k, mine_);
        lane.signal_node(arrived, count_of(k + 1));
        for (const Part &part : parts) {
            if (nodes_.together(part.owner, rank_)) continue;
            lane.wait(part.owner, taken, plan_.has_part(k - 2, part.owner) ? count_of(k) : 1);
            lane.put(summed(k, mine_, part), plan_.result(k, part), part.count, arrived,
                     plan_.sent(k, last_));
        }
    }

    // Where a result lies on the last node.
    Place summed(std::int64_t k, int slice, const Part &part) const {
        Place place = plan_.outgoing(plan_.worker(last_.node, slice), last_, k);
        place.offset += part.begin - plan_.begin(k, slice);
        return place;
    }

    // The results of this rank.
    Lane take() const {
        Lane lane;
        lane.acquire();
        const bool is_there = node_ == last_.node;
        const auto any_part = [&](std::int64_t k, int slice) {
            return plan_.has_part(k, rank_) && plan_.part(k, slice, rank_).count > 0;
        };
        const auto tell = [&](std::uint32_t value, std::int64_t k, std::int64_t other) {
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
            else tell(count_of(k + 2), k, k + 2);
        }
        lane.signal_node(taken, count_of(plan_.rounds() + 2));
        return lane;
    }

    const Problem &problem_;
    const Nodes &nodes_;
    Plan plan_;
    int rank_, node_, mine_;
    std::span<const int> members_;
    const Run &last_;
    std::vector<const Run *> runs_;  // of this node
    bool is_read_ = false;
};

}  // namespace

bool can_chain(const Problem &problem) {
    return problem.arrays && problem.nodes.count() > 1 && Plan(problem).slice() > 0;
}

// Chain: running sums pass through the nodes in the order of ranks.
//
//     node A            node B            node C
//     0 + 1 ────sum───► + 2 + 3 ───sum──► + 4 + 5 ───results───► owners
//
// Every element is summed as one rank would do it that has all contributions: one after another, in
// the order of ranks, from the first to the last. So the bits of the result depend on nothing but
// the contributions. The vector passes in rounds, and every node works at another one. Of a long
// vector each of several ranks of a node sums a slice. Where ranks of different nodes take turns, a
// sum comes back to a node as often as they do.
//
// Cost: a latency for each node, one after another; every node but the last sends the vector once,
// as partial sums, and the last one sends the results. With many rounds that takes as long as the
// vector takes through one link.
// Source: the pipelined chain of broadcast, backwards (Sanders, Speck, Traeff, "Two-tree algorithms
// for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009, section 2).
Schedule chain(const Problem &problem, int rank) {
    return Chain(problem, rank).make();
}

}  // namespace vescomm::reduce_scatter_v
