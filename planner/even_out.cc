// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation.
#include "planner/even_out.h"

#include <algorithm>
#include <set>
#include <vector>

#include "planner/arithmetic.h"

namespace vescomm::planner {
namespace {

constexpr std::int64_t free_steps = std::int64_t{1} << 17;
constexpr std::size_t max_partners = 16;  // lightly loaded ranks examined

class EvenOut {
public:
    EvenOut(std::span<Job> jobs, std::span<std::int64_t> loads, std::int64_t steps)
        : jobs_(jobs), loads_(loads), steps_(steps), of_rank_(loads.size()) {
        for (std::size_t i = 0; i < jobs.size(); ++i) of_rank_[jobs[i].rank].push_back(i);
        for (std::size_t rank = 0; rank < loads.size(); ++rank) ranks_.insert({loads[rank], rank});
    }

    void run(std::int64_t bound) {
        while (ranks_.rbegin()->first > bound && steps_ > 0) {
            if (!improve(ranks_.rbegin()->second)) return;
        }
    }

private:
    static constexpr std::size_t none = ~std::size_t{0};

    // A move of one job to another rank, optionally in exchange for a job of that rank.
    struct Exchange {
        std::size_t given = none;  // job
        std::size_t taken = none;  // job; none for a move
        std::size_t rank = none;  // the other rank
        std::int64_t load = 0;  // the larger of both loads after the exchange
    };

    bool improve(std::size_t max) {
        Exchange best;
        best.load = loads_[max];
        std::size_t partners = 0;
        for (const auto &[load, rank] : ranks_) {
            if (rank == max || partners++ == max_partners) break;
            for (const std::size_t given : of_rank_[max]) {
                consider(best, max, {given, none, rank});
                for (const std::size_t taken : of_rank_[rank]) {
                    if (--steps_ <= 0) break;
                    consider(best, max, {given, taken, rank});
                }
            }
        }
        if (best.rank == none) return false;
        move(best.given, best.rank);
        if (best.taken != none) move(best.taken, max);
        return true;
    }

    void consider(Exchange &best, std::size_t max, Exchange exchange) {
        const std::int64_t taken = exchange.taken == none ? 0 : jobs_[exchange.taken].work;
        const std::int64_t moved = jobs_[exchange.given].work - taken;
        exchange.load = std::max(loads_[max] - moved, loads_[exchange.rank] + moved);
        if (moved > 0 && exchange.load < best.load) best = exchange;
    }

    void move(std::size_t job, std::size_t rank) {
        const std::size_t from = jobs_[job].rank;
        std::erase(of_rank_[from], job);
        of_rank_[rank].push_back(job);
        jobs_[job].rank = rank;
        add(from, -jobs_[job].work);
        add(rank, jobs_[job].work);
    }

    void add(std::size_t rank, std::int64_t work) {
        ranks_.erase({loads_[rank], rank});
        loads_[rank] += work;
        ranks_.insert({loads_[rank], rank});
    }

    std::span<Job> jobs_;
    std::span<std::int64_t> loads_;
    std::int64_t steps_;
    std::vector<std::vector<std::size_t>> of_rank_;  // indices of jobs
    std::set<std::pair<std::int64_t, std::size_t>> ranks_;  // by load
};

}  // namespace

void even_out(std::span<Job> jobs, std::span<std::int64_t> loads, std::int64_t bound,
              std::int64_t more_steps) {
    if (jobs.empty() || *std::ranges::max_element(loads) <= bound) return;
    EvenOut(jobs, loads, plus(free_steps, more_steps)).run(bound);
}

}  // namespace vescomm::planner
