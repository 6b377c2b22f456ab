// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/symbolic_memory.h"

#include <algorithm>
#include <set>

namespace vescomm::symbolic {

namespace {

bool ordered(int thread, std::uint32_t time, const Thread &now) {
    return now.clock[thread] >= time;
}

}  // namespace

Memory::Memory(const Problem &problem, std::span<const Schedule> schedules) : problem_(problem) {
    const auto ranks = static_cast<std::size_t>(problem.ranks());
    stores_.resize(4 * ranks);
    for (int rank = 0; rank < problem.ranks(); ++rank) {
        const std::int64_t shard = problem.cuts.empty() ? 0 : problem.size(rank);
        stores_[index({rank, Region::source, 0})].size = shard;
        stores_[index({rank, Region::output, 0})].size = shard;
        stores_[index({rank, Region::buffer, 0})].size = problem.elements();
        stores_[index({rank, Region::scratch, 0})].size = schedules[rank].scratch;
    }
    cut_into_cells(schedules);
}

std::size_t Memory::index(const Place &place) const {
    const int owner = place.region == Region::buffer && problem_.per_node
                          ? problem_.nodes.members(problem_.nodes.node_of(place.rank))[0]
                          : place.rank;
    return static_cast<std::size_t>(place.region) * problem_.ranks() + owner;
}

std::string Memory::name(const Place &place) const {
    static constexpr const char *names[] = {"source", "buffer", "output", "scratch"};
    return "the " + std::string(names[static_cast<int>(place.region)]) + " of rank " +
           std::to_string(place.rank);
}

void Memory::require_reachable(int rank, const Step &step, const Place &place) const {
    const bool own = place.region == Region::source || place.region == Region::output;
    const bool target = step.action == Action::put && place == step.to;
    const bool reachable =
        place.rank == rank || (!own && (target || problem_.nodes.together(rank, place.rank)));
    const std::int64_t size = stores_[index(place)].size;
    if (!reachable || (own && target))
        throw Fault("rank " + std::to_string(rank) + ", " + describe(step) + ": cannot reach " +
                    name(place));
    if (place.offset < 0 || step.count < 0 || place.offset > size - step.count)
        throw Fault("rank " + std::to_string(rank) + ", " + describe(step) + ": outside " +
                    name(place) + ", which has " + std::to_string(size) + " elements");
    if (step.action == Action::put && place.region != step.to.region)
        throw Fault("rank " + std::to_string(rank) + ", " + describe(step) +
                    ": a put cannot convert");
}

// Cells must be whole for every step, so the ends of all steps are cuts, and a cut on one side of a
// move is one on the other side too, until nothing changes any more.
void Memory::cut_into_cells(std::span<const Schedule> schedules) {
    std::vector<std::set<std::int64_t>> cuts(stores_.size());
    for (std::size_t i = 0; i < stores_.size(); ++i) cuts[i] = {0, stores_[i].size};
    for (int rank = 0; rank < problem_.ranks(); ++rank)
        cuts[index({rank, Region::buffer, 0})].insert(problem_.cuts.begin(), problem_.cuts.end());

    std::vector<std::pair<const Step *, const Place *>> moves;
    for (int rank = 0; rank < problem_.ranks(); ++rank)
        for (const Lane &lane : schedules[rank].lanes)
            for (const Step &step : lane.steps())
                for (const Place &from : step.from) {
                    require_reachable(rank, step, from);
                    require_reachable(rank, step, step.to);
                    moves.emplace_back(&step, &from);
                }
    const auto carry = [&](const Place &from, const Place &to, std::int64_t count) {
        const auto &source = cuts[index(from)];
        std::vector<std::int64_t> found{to.offset, to.offset + count};
        for (auto cut = source.upper_bound(from.offset);
             cut != source.end() && *cut < from.offset + count; ++cut)
            found.push_back(*cut - from.offset + to.offset);
        auto &target = cuts[index(to)];
        const std::size_t before = target.size();
        target.insert(found.begin(), found.end());
        return target.size() != before;
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (const auto &[step, from] : moves) {
            changed |= carry(*from, step->to, step->count);
            changed |= carry(step->to, *from, step->count);
        }
    }
    for (std::size_t i = 0; i < stores_.size(); ++i) {
        stores_[i].starts.assign(cuts[i].begin(), cuts[i].end());
        stores_[i].cells.resize(stores_[i].starts.size() - 1);
    }
}

std::pair<std::size_t, std::size_t> Memory::cells(const Place &place, std::int64_t count) const {
    const auto &starts = stores_[index(place)].starts;
    const auto find = [&](std::int64_t offset) {
        return static_cast<std::size_t>(std::lower_bound(starts.begin(), starts.end(), offset) -
                                        starts.begin());
    };
    return {find(place.offset), find(place.offset + count)};
}

void Memory::read(Cell &cell, const Place &place, const Thread &thread) {
    for (const Access &write : cell.writes)
        if (!ordered(write.thread, write.time, thread))
            throw Fault("an element of " + name(place) + " is read while it may be written");
    cell.reads.push_back({thread.id, thread.now()});
}

void Memory::write(Cell &cell, const Place &place, const Thread &thread) {
    for (const Access &write : cell.writes)
        if (!ordered(write.thread, write.time, thread))
            throw Fault("an element of " + name(place) + " is written twice at the same time");
    for (const Access &read : cell.reads)
        if (!ordered(read.thread, read.time, thread))
            throw Fault("an element of " + name(place) + " is overwritten while it may be read");
    cell.writes.assign(1, {thread.id, thread.now()});
    cell.reads.clear();
}

void Memory::move(int rank, const Step &step, const Thread &thread) {
    const auto [first, last] = cells(step.to, step.count);
    Store &target = stores_[index(step.to)];
    for (std::size_t i = first; i < last; ++i) {
        Cell sum;
        sum.contributions.assign(problem_.ranks(), 0);
        for (const Place &from : step.from) {
            const std::int64_t offset = target.starts[i] - step.to.offset + from.offset;
            Cell &cell =
                stores_[index(from)].cells[cells({from.rank, from.region, offset}, 0).first];
            read(cell, from, thread);
            const auto context = [&] {
                return "rank " + std::to_string(rank) + ", " + describe(step) + ": ";
            };
            if (cell.element < 0) throw Fault(context() + name(from) + " is undefined there");
            if (sum.element >= 0 &&
                (sum.element != cell.element || sum.operation != cell.operation))
                throw Fault(context() + "adds different elements");
            if (step.action == Action::reduce && cell.scaled)
                throw Fault(context() + name(from) + " is scaled already");
            sum.element = cell.element;
            sum.operation = cell.operation;
            sum.scaled = cell.scaled || (step.action == Action::reduce && step.finish);
            for (int k = 0; k < problem_.ranks(); ++k) {
                sum.contributions[k] =
                    static_cast<std::uint8_t>(sum.contributions[k] + cell.contributions[k]);
                if (sum.contributions[k] > 1)
                    throw Fault(context() + "adds the contribution of rank " + std::to_string(k) +
                                " twice");
            }
        }
        write(target.cells[i], step.to, thread);
        sum.writes = std::move(target.cells[i].writes);
        target.cells[i] = std::move(sum);
    }
}

void Memory::fill(const Place &place, std::int64_t first_element, std::int64_t count, int rank,
                  int operation, const Thread &thread) {
    const auto [first, last] = cells(place, count);
    Store &store = stores_[index(place)];
    for (std::size_t i = first; i < last; ++i) {
        Cell &cell = store.cells[i];
        write(cell, place, thread);
        cell.element = first_element + store.starts[i] - place.offset;
        cell.operation = operation;
        cell.scaled = false;
        cell.contributions.assign(problem_.ranks(), 0);
        cell.contributions[rank] = 1;
    }
}

void Memory::expect(const Place &place, std::int64_t first_element, std::int64_t count,
                    const std::vector<std::uint8_t> &contributions, bool scaled, int operation,
                    const Thread &thread) {
    const auto [first, last] = cells(place, count);
    Store &store = stores_[index(place)];
    for (std::size_t i = first; i < last; ++i) {
        Cell &cell = store.cells[i];
        read(cell, place, thread);
        const std::int64_t element = first_element + store.starts[i] - place.offset;
        if (cell.element != element || cell.operation != operation || cell.scaled != scaled ||
            cell.contributions != contributions)
            throw Fault("element " + std::to_string(element) + " in " + name(place) +
                        " does not hold the result of operation " + std::to_string(operation));
    }
}

void Memory::fill_inputs(int rank, int operation, const Thread &thread) {
    switch (problem_.collective) {
        case Collective::all_gather_v:
            fill(problem_.source(rank), problem_.begin(rank), problem_.size(rank), rank, operation,
                 thread);
            break;
        case Collective::reduce_scatter_v:
        case Collective::all_reduce:
            fill({rank, Region::buffer, 0}, 0, problem_.elements(), rank, operation, thread);
            break;
        case Collective::broadcast:
            if (rank == problem_.root)
                fill({rank, Region::buffer, 0}, 0, problem_.elements(), rank, operation, thread);
            break;
        case Collective::barrier:
            break;
    }
}

void Memory::verify_outputs(int rank, int operation, const Thread &thread) {
    const auto only = [&](int contributor) {
        std::vector<std::uint8_t> contributions(problem_.ranks(), 0);
        contributions[contributor] = 1;
        return contributions;
    };
    const std::vector<std::uint8_t> all(problem_.ranks(), 1);
    switch (problem_.collective) {
        case Collective::all_gather_v:
            for (int owner = 0; owner < problem_.ranks(); ++owner)
                expect(problem_.shard(rank, owner), problem_.begin(owner), problem_.size(owner),
                       only(owner), false, operation, thread);
            break;
        case Collective::reduce_scatter_v:
            expect(problem_.output(rank), problem_.begin(rank), problem_.size(rank), all, true,
                   operation, thread);
            break;
        case Collective::all_reduce:
            expect({rank, Region::buffer, 0}, 0, problem_.elements(), all, true, operation, thread);
            break;
        case Collective::broadcast:
            expect({rank, Region::buffer, 0}, 0, problem_.elements(), only(problem_.root), false,
                   operation, thread);
            break;
        case Collective::barrier:
            break;
    }
}

}  // namespace vescomm::symbolic
