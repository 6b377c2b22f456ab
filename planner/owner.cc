// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; processes every matrix of the model.
#include "planner/owner.h"

#include <algorithm>
#include <span>

#include "planner/bounds.h"
#include "planner/even_out.h"
#include "planner/place.h"
#include "planner/plan.h"

namespace vescomm::planner {
namespace {

// Consecutive matrices of one tensor on one rank.
struct Run {
    std::size_t rank = 0;
    std::size_t item = 0;
    std::int64_t first = 0;
    std::int64_t matrices = 1;
};

// A heap of ranks by load, smallest load first, then smallest rank.
class LeastLoaded {
public:
    explicit LeastLoaded(std::span<std::int64_t> loads) : loads_(loads) {
        for (std::size_t rank = 0; rank < loads.size(); ++rank)
            heap_.push_back({loads[rank], rank});
        std::ranges::make_heap(heap_, std::ranges::greater());
    }

    // Adds the work to the least loaded rank and returns that rank.
    std::size_t take(std::int64_t work) {
        std::ranges::pop_heap(heap_, std::ranges::greater());
        auto &[load, rank] = heap_.back();
        load = loads_[rank] += work;
        const std::size_t taken = rank;
        std::ranges::push_heap(heap_, std::ranges::greater());
        return taken;
    }

private:
    std::span<std::int64_t> loads_;
    std::vector<std::pair<std::int64_t, std::size_t>> heap_;
};

// Returns the smallest level such that filling all ranks up to it takes all of the work.
std::int64_t level_for(std::span<const std::int64_t> loads, std::int64_t work) {
    std::int64_t level = unbounded;
    while (true) {
        std::int64_t sum = work;
        std::int64_t below = 0;
        for (const std::int64_t load : loads) {
            if (load >= level) continue;
            sum += load;
            ++below;
        }
        const std::int64_t next = divide_up(sum, below);
        if (next >= level) return level;
        level = next;
    }
}

class Owners {
public:
    Owners(const Groups &groups, const Options &options)
        : groups_(groups),
          options_(options),
          works_(planner::works_of(groups, options.work)),
          runs_(groups.of_unit.size()) {
        const int ranks = groups.ranks;
        loads_.assign(static_cast<std::size_t>(ranks), 0);
    }

    Ownership run() {
        std::vector<Job> jobs = single_jobs();
        // A stable sort keeps equal jobs in the order of the model on every machine.
        std::ranges::stable_sort(jobs, std::ranges::greater(), &Job::work);
        const auto larger = std::ranges::find_if(
            jobs, [&](const Job &job) { return job.work <= largest_stacked_; });
        const std::size_t split = static_cast<std::size_t>(larger - jobs.begin());
        assign(std::span(jobs).first(split));
        for (std::size_t unit = 0; unit < runs_.size(); ++unit) {
            if (stacked(groups_.of_unit[unit])) divide(unit);
        }
        assign(std::span(jobs).subspan(split));
        const std::int64_t bound = bound_of_largest();
        even_out(jobs, loads_, bound, options_.search_steps);
        for (const Job &job : jobs) runs_[job.unit].push_back({job.rank, job.item, 0, 1});

        Ownership result;
        for (std::size_t unit = 0; unit < runs_.size(); ++unit) {
            if (!stacked(groups_.of_unit[unit])) {
                std::ranges::sort(runs_[unit], {},
                                  [](const Run &run) { return std::pair(run.rank, run.item); });
            }
            result.units.push_back(lay_out(unit));
            runs_[unit] = {};
        }
        std::int64_t sum = 0;
        for (const std::int64_t load : loads_) sum += load;
        if (sum > 0) {
            const double mean = static_cast<double>(sum) / static_cast<double>(loads_.size());
            result.largest_cost_over_mean =
                static_cast<double>(*std::ranges::max_element(loads_)) / mean;
            result.bound_cost_over_mean = static_cast<double>(bound) / mean;
        }
        return result;
    }

private:
    // Returns true when units of the group have tensors that several ranks may own.
    bool stacked(std::size_t group) const {
        return std::ranges::any_of(works_[group], [](const Works &w) { return w.matrices > 1; });
    }

    // Returns the jobs of all units without stacked tensors.
    std::vector<Job> single_jobs() {
        std::vector<Job> jobs;
        for (std::size_t unit = 0; unit < runs_.size(); ++unit) {
            const std::size_t group = groups_.of_unit[unit];
            const std::vector<Works> &works = works_[group];
            if (stacked(group)) {
                for (const Works &work : works) {
                    largest_stacked_ = std::max(largest_stacked_, work.each);
                }
                continue;
            }
            for (std::size_t i = 0; i < works.size(); ++i) {
                jobs.push_back({works[i].each, unit, i, 0});
            }
        }
        return jobs;
    }

    void assign(std::span<Job> jobs) {
        if (jobs.empty()) return;
        LeastLoaded ranks(loads_);
        for (Job &job : jobs) job.rank = ranks.take(job.work);
    }

    // Divides the ranks into zones and fills them; see owner.h. Every rank is filled up to a common
    // level. A zone continues where the previous one ended, possibly inside a rank.
    void divide(std::size_t unit) {
        const std::vector<Works> &works = works_[groups_.of_unit[unit]];
        // Items of each zone. The first zone holds all items of one matrix.
        std::vector<std::vector<std::size_t>> zones(1);
        std::int64_t all = 0;
        for (std::size_t i = 0; i < works.size(); ++i) {
            all += works[i].each * works[i].matrices;
            if (works[i].matrices == 1) {
                zones[0].push_back(i);
            } else {
                zones.push_back({i});
            }
        }
        // Every second unit has its zones reversed, so that ranks get matrices of several sizes.
        if (unit % 2 != 0) std::ranges::reverse(zones);
        const std::int64_t level = level_for(loads_, all);
        std::size_t last = 0;
        for (const std::vector<std::size_t> &zone : zones) {
            if (zone.empty()) continue;
            std::int64_t work = 0;
            for (const std::size_t i : zone) work += works[i].each * works[i].matrices;
            const std::size_t first = last;
            std::vector<std::int64_t> capacities;  // of the zone's ranks, in work
            while (true) {
                capacities.push_back(std::clamp<std::int64_t>(level - loads_[last], 0, work));
                work -= capacities.back();
                if (work == 0 || last + 1 == loads_.size()) break;
                ++last;
            }
            capacities.back() += work;  // work that exceeds the capacity left by earlier zones
            if (works[zone[0]].matrices > 1) {
                fill_stacked(unit, zone[0], first, capacities);
            } else {
                fill_single(unit, zone, first, capacities);
            }
        }
    }

    void fill_single(std::size_t unit, std::vector<std::size_t> items, std::size_t first,
                     std::vector<std::int64_t> &capacities) {
        const std::vector<Works> &works = works_[groups_.of_unit[unit]];
        std::ranges::stable_sort(items, std::ranges::greater(),
                                 [&](std::size_t i) { return works[i].each; });
        // As loads, so that the rank with the largest capacity is the least loaded.
        for (std::int64_t &capacity : capacities) capacity = -capacity;
        LeastLoaded ranks(capacities);
        std::vector<Run> runs;
        for (const std::size_t i : items) {
            const std::size_t rank = first + ranks.take(works[i].each);
            loads_[rank] += works[i].each;
            runs.push_back({rank, i, 0, 1});
        }
        std::ranges::sort(runs, {}, [](const Run &run) { return std::pair(run.rank, run.item); });
        runs_[unit].insert(runs_[unit].end(), runs.begin(), runs.end());
    }

    // Gives each rank the matrices that fit into its capacity, and the rest one by one to the rank
    // with most capacity left.
    void fill_stacked(std::size_t unit, std::size_t item, std::size_t first,
                      std::vector<std::int64_t> &capacities) {
        const auto [matrices, work] = works_[groups_.of_unit[unit]][item];
        std::vector<std::int64_t> counts(capacities.size());
        std::int64_t left = matrices;
        for (std::size_t k = 0; k < capacities.size(); ++k) {
            counts[k] = capacities[k] / work;
            left -= counts[k];
            capacities[k] = counts[k] * work - capacities[k];  // as a load
        }
        LeastLoaded ranks(capacities);
        for (; left > 0; --left) ++counts[ranks.take(work)];
        std::int64_t next = 0;
        for (std::size_t k = 0; k < counts.size(); ++k) {
            if (counts[k] > 0) runs_[unit].push_back({first + k, item, next, counts[k]});
            loads_[first + k] += counts[k] * work;
            next += counts[k];
        }
    }

    // Applies lower_bound() to a buffer of work, in which each rank is a shard and each matrix a
    // block.
    std::int64_t bound_of_largest() const {
        Items work;
        work.ranks = static_cast<int>(loads_.size());
        for (const std::size_t group : groups_.of_unit) {
            for (const Works &item : works_[group]) {
                const std::int64_t all = item.each * item.matrices;
                work.items.push_back({0, Grid(all, all, item.each)});
                work.occupied += all;
                work.elements += all;
            }
        }
        return work.items.empty() ? 0 : lower_bound(work);
    }

    Answer lay_out(std::size_t unit) const {
        const Group &group = groups_.groups[groups_.of_unit[unit]];
        const std::vector<Works> &works = works_[groups_.of_unit[unit]];
        const std::vector<Run> &runs = runs_[unit];
        std::vector<std::size_t> order;
        for (const Run &run : runs) {
            if (run.first == 0) order.push_back(run.item);
        }
        const std::vector<std::int64_t> offsets = concatenate(group.items, order);
        Answer answer;
        answer.order = by_owner;
        answer.orders = {answer.order};
        for (const std::size_t tensor : group.items.empty) answer.places.push_back({tensor, 0, 1});
        for (std::size_t i = 0; i < order.size(); ++i) {
            const Item &item = group.items.items[order[i]];
            answer.places.push_back({item.tensor, offsets[i], item.grid.block()});
        }
        answer.cuts.reserve(loads_.size() + 1);
        answer.cuts.push_back(0);
        std::size_t place = 0;  // index of the run's item in the order
        for (const Run &run : runs) {
            if (order[place] != run.item) ++place;
            const Item &item = group.items.items[run.item];
            const std::int64_t matrices = works[run.item].matrices;
            const std::int64_t start = offsets[place] + item.elements() / matrices * run.first;
            if (answer.cuts.size() <= run.rank) answer.cuts.resize(run.rank + 1, start);
        }
        answer.cuts.resize(loads_.size() + 1, offsets.back());
        answer.lower_bound = group.items.items.empty() ? 0 : lower_bound(group.items);
        set_figures(answer, group.items, Shares(groups_.ranks, {}));
        answer.optimal = answer.largest_shard <= answer.lower_bound;
        return answer;
    }

    const Groups &groups_;
    const Options &options_;
    std::vector<std::vector<Works>> works_;  // for each group
    std::vector<std::vector<Run>> runs_;  // for each unit, in the order of its buffer
    std::vector<std::int64_t> loads_;  // work of each rank
    std::int64_t largest_stacked_ = 0;  // work on the largest stacked matrix
};

}  // namespace

Ownership own(const Groups &groups, const Options &options) {
    return Owners(groups, options).run();
}

}  // namespace vescomm::planner
