// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/symbolic_memory.h"

#include <algorithm>
#include <functional>
#include <set>

namespace vescomm::internal::symbolic {

namespace {

bool ordered(int thread, std::uint32_t time, const Thread &now) {
    return now.clock[thread] >= time;
}

// In the order of ranks, a partial sum holds the contributions of ranks 0 to n - 1, and only that
// of rank n may be added.
void require_next(const std::vector<std::uint8_t> &sum, const std::vector<std::uint8_t> &next,
                  const std::string &context) {
    const auto first = std::ranges::find(next, 1) - next.begin();
    const auto count = std::ranges::count(next, 1);
    const auto before = std::ranges::count(sum, 1);
    if (first != before || (before > 0 && count != 1))
        throw Fault(context + "adds the contribution of rank " + std::to_string(first) + " to " +
                    std::to_string(before) + " others, which is not the order of ranks");
}

// The end of the part of its staging buffer that a rank may use.
std::int64_t staging_end(const ArrayProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const std::int64_t begin = problem.staging.begin;
    std::int64_t end = begin + problem.staging.count;
    if (problem.pairs.count > 0) {
        const auto locals = static_cast<std::int64_t>(nodes.members(nodes.node_of(rank)).size());
        end = std::max(end, problem.pairs.begin + locals * problem.pairs.stride);
    }
    return end;
}

}  // namespace

Memory::Memory(const AnyProblem &any, std::span<const Schedule> schedules,
               const CheckedRegistrations &registered)
    : problem_(*any), buffers_(any.buffers()), arrays_(any.arrays()), registered_(registered) {
    const Problem &problem = *any;
    const auto ranks = static_cast<std::size_t>(problem.ranks());
    stores_.resize(regions * ranks);
    for (int rank = 0; rank < problem.ranks(); ++rank) {
        const auto store = [&](Region region) -> Store & {
            return stores_[index({rank, region, 0})];
        };
        store(Region::source).size =
            arrays_ != nullptr ? arrays_->source_size(rank) : buffers_->source_size(rank);
        store(Region::output).size =
            arrays_ != nullptr ? arrays_->output_size(rank) : buffers_->output_size(rank);
        if (buffers_ != nullptr) store(Region::buffer).size = problem.elements();
        store(Region::staging).size = schedules[rank].staging;
        store(Region::partial).size = schedules[rank].partial;
        store(Region::inlined).size = schedules[rank].inlined;
        const auto limit = [&](const Extent &extent) { return extent.begin + extent.count; };
        if (arrays_ != nullptr && (schedules[rank].staging > staging_end(*arrays_, rank) ||
                                   schedules[rank].partial > limit(arrays_->partial) ||
                                   schedules[rank].inlined > limit(arrays_->inlined)))
            throw Fault("rank " + std::to_string(rank) +
                        " uses more of the staging buffer than there is");
    }
    cut_into_cells(schedules);
}

std::size_t Memory::index(const Place &place) const {
    const int owner = place.region == Region::buffer && buffers_ != nullptr && buffers_->per_node
                          ? problem_.nodes.members(problem_.nodes.node_of(place.rank))[0]
                          : place.rank;
    const bool in_place = place.region == Region::output && !registered_.in_place.empty() &&
                          registered_.in_place[static_cast<std::size_t>(owner)];
    const Region region = in_place ? Region::source : place.region;
    return static_cast<std::size_t>(region) * problem_.ranks() + owner;
}

std::string Memory::name(const Place &place) const {
    static constexpr const char *names[] = {"source",  "buffer",       "output",
                                            "staging", "partial sums", "inline data"};
    return "the " + std::string(names[static_cast<int>(place.region)]) + " of rank " +
           std::to_string(place.rank);
}

void Memory::require_reachable(int rank, const Lane &lane, const Step &step,
                               const Place &place) const {
    const bool own = place.region == Region::source || place.region == Region::output;
    const bool target = step.action == Action::put && place == step.to;
    const bool reads = !(place == step.to);
    const bool mapped = !own || (reads && registered_.contains(place.rank, place.region));
    const bool reachable = place.rank == rank || (!own && target) ||
                           (mapped && problem_.nodes.together(rank, place.rank));
    const std::int64_t size = stores_[index(place)].size;
    if (!reachable || (own && target))
        throw Fault("rank " + std::to_string(rank) + ", " + describe(lane, step) +
                    ": cannot reach " + name(place));
    if (place.offset < 0 || step.count < 0 || place.offset > size - step.count)
        throw Fault("rank " + std::to_string(rank) + ", " + describe(lane, step) + ": outside " +
                    name(place) + ", which has " + std::to_string(size) + " elements");
    // The caller's arrays and the staging buffer have one type. Plain sums have that of the buffer.
    const auto type = [&](Region region) {
        const bool array = region == Region::source || region == Region::output;
        if (buffers_ != nullptr && buffers_->contributions_are_sums && region == Region::partial)
            return Region::buffer;
        return arrays_ != nullptr && array ? Region::staging : region;
    };
    if (step.action == Action::put && type(place.region) != type(step.to.region))
        throw Fault("rank " + std::to_string(rank) + ", " + describe(lane, step) +
                    ": a put cannot convert");
}

// A step must cover whole cells. So the ends of all steps are cuts, and each cut on one side of a
// move is also made on the other side, until nothing changes.
void Memory::cut_into_cells(std::span<const Schedule> schedules) {
    std::vector<std::set<std::int64_t>> cuts(stores_.size());
    for (std::size_t i = 0; i < stores_.size(); ++i) cuts[i] = {0, stores_[i].size};
    for (int rank = 0; rank < problem_.ranks(); ++rank)
        cut_where_blocks_meet(rank, [&](Region region, std::int64_t offset) {
            cuts[index({rank, region, 0})].insert(offset);
        });

    std::vector<std::pair<const Step *, Place>> moves;
    for (int rank = 0; rank < problem_.ranks(); ++rank)
        for (const Lane &lane : schedules[rank].lanes)
            for (const Step &step : lane.steps())
                for (const Place &from : lane.sources(step)) {
                    require_reachable(rank, lane, step, from);
                    require_reachable(rank, lane, step, step.to);
                    moves.emplace_back(&step, from);
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
            changed |= carry(from, step->to, step->count);
            changed |= carry(step->to, from, step->count);
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

void Memory::move(int rank, const Lane &lane, const Step &step, const Thread &reader,
                  const Thread &writer) {
    const auto [first, last] = cells(step.to, step.count);
    Store &target = stores_[index(step.to)];
    const std::vector<Place> sources = lane.sources(step);
    const auto is_sum = [](const Place &place) { return place.region == Region::partial; };
    if (!std::is_partitioned(sources.begin() + (starts_with_sum(sources) ? 1 : 0), sources.end(),
                             std::not_fn(is_sum)))
        throw Fault("rank " + std::to_string(rank) + ", " + describe(lane, step) +
                    ": a contribution after a partial sum that is not the first of all");
    for (std::size_t i = first; i < last; ++i) {
        Cell sum;
        sum.contributions.assign(problem_.ranks(), 0);
        for (const Place &from : sources) {
            const std::int64_t offset = target.starts[i] - step.to.offset + from.offset;
            Cell &cell =
                stores_[index(from)].cells[cells({from.rank, from.region, offset}, 0).first];
            read(cell, from, reader);
            const auto context = [&] {
                return "rank " + std::to_string(rank) + ", " + describe(lane, step) + ": ";
            };
            if (cell.element < 0) throw Fault(context() + name(from) + " is undefined there");
            if (sum.element >= 0 &&
                (sum.element != cell.element || sum.operation != cell.operation))
                throw Fault(context() + "adds different elements");
            if (step.action == Action::reduce && cell.scaled)
                throw Fault(context() + name(from) + " is scaled already");
            if (problem_.in_order && step.action == Action::reduce && sources.size() > 1)
                require_next(sum.contributions, cell.contributions, context());
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
        write(target.cells[i], step.to, writer);
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
        if (arrays_ != nullptr) write(cell, place, thread);
    }
}

// Cuts the caller's arrays, or its buffer, at the ends of the blocks that the caller writes or
// reads.
void Memory::cut_where_blocks_meet(int rank,
                                   const std::function<void(Region, std::int64_t)> &cut) const {
    if (arrays_ == nullptr)
        for (const std::int64_t at : problem_.cuts) cut(Region::buffer, at);
    if (arrays_ == nullptr || reduces(problem_.collective)) return;
    for (int peer = 0; peer < problem_.ranks(); ++peer) {
        if (const std::int64_t count = arrays_->block(rank, peer); count > 0) {
            cut(Region::source, arrays_->given(rank, peer).offset);
            cut(Region::source, arrays_->given(rank, peer).offset + count);
        }
        if (const std::int64_t count = arrays_->block(peer, rank); count > 0) {
            cut(Region::output, arrays_->taken(peer, rank).offset);
            cut(Region::output, arrays_->taken(peer, rank).offset + count);
        }
    }
}

std::int64_t Memory::element(int from, int to) const {
    switch (problem_.collective) {
        case Collective::all_gather_v:
        case Collective::gather_v:
            return problem_.begin(from);
        case Collective::scatter_v:
            return problem_.begin(to);
        case Collective::all_to_all_v:
            // The high bits identify the sender.
            return (std::int64_t{from} << 40) + arrays_->exchange.sent_at(from, to);
        default:
            return 0;
    }
}

void Memory::fill_inputs(int rank, int operation, const Thread &thread) {
    const Collective collective = problem_.collective;
    if (collective == Collective::barrier) return;
    const Region contributions = arrays_ != nullptr ? Region::source : Region::buffer;
    if (reduces(collective)) {
        fill({rank, contributions, 0}, 0, problem_.elements(), rank, operation, thread);
    } else if (buffers_ != nullptr && collective == Collective::all_gather_v) {
        fill(buffers_->source(rank), problem_.begin(rank), problem_.size(rank), rank, operation,
             thread);
    } else if (buffers_ != nullptr) {
        if (rank == problem_.root)
            fill({rank, Region::buffer, 0}, 0, problem_.elements(), rank, operation, thread);
    } else {
        // A block for all ranks is written once.
        const bool shared =
            collective == Collective::all_gather_v || collective == Collective::broadcast;
        for (int to = 0; to < problem_.ranks(); ++to) {
            if (arrays_->block(rank, to) == 0) continue;
            fill(arrays_->given(rank, to), element(rank, to), arrays_->block(rank, to), rank,
                 operation, thread);
            if (shared) break;
        }
    }
}

void Memory::verify_outputs(int rank, int operation, const Thread &thread) {
    const Collective collective = problem_.collective;
    const auto only = [&](int contributor) {
        std::vector<std::uint8_t> contributions(problem_.ranks(), 0);
        contributions[contributor] = 1;
        return contributions;
    };
    const std::vector<std::uint8_t> all(problem_.ranks(), 1);
    const Place whole{rank, arrays_ != nullptr ? Region::output : Region::buffer, 0};
    if (collective == Collective::barrier) return;
    if (collective == Collective::reduce_scatter_v) {
        const Place output = arrays_ != nullptr ? arrays_->output(rank) : buffers_->output(rank);
        expect(output, problem_.begin(rank), problem_.size(rank), all, true, operation, thread);
    } else if (reduces(collective)) {
        if (collective == Collective::all_reduce || rank == problem_.root)
            expect(whole, 0, problem_.elements(), all, true, operation, thread);
    } else if (arrays_ != nullptr) {
        for (int from = 0; from < problem_.ranks(); ++from)
            if (arrays_->block(from, rank) > 0)
                expect(arrays_->taken(from, rank), element(from, rank), arrays_->block(from, rank),
                       only(from), false, operation, thread);
    } else if (collective == Collective::all_gather_v) {
        for (int owner = 0; owner < problem_.ranks(); ++owner)
            expect(buffers_->shard(rank, owner), problem_.begin(owner), problem_.size(owner),
                   only(owner), false, operation, thread);
    } else {
        expect(whole, 0, problem_.elements(), only(problem_.root), false, operation, thread);
    }
}

}  // namespace vescomm::internal::symbolic
