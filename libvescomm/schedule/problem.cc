// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/problem.h"

#include <algorithm>

namespace vescomm::internal {

std::string_view name_of(Collective collective) {
    switch (collective) {
        case Collective::all_gather_v:
            return "all_gather_v";
        case Collective::reduce_scatter_v:
            return "reduce_scatter_v";
        case Collective::all_reduce:
            return "all_reduce";
        case Collective::broadcast:
            return "broadcast";
        case Collective::barrier:
            return "barrier";
        case Collective::reduce:
            return "reduce";
        case Collective::gather_v:
            return "gather_v";
        case Collective::scatter_v:
            return "scatter_v";
        case Collective::all_to_all_v:
            return "all_to_all_v";
        case Collective::send:
            return "send";
        case Collective::receive:
            return "receive";
    }
    return "unknown collective";
}

bool reduces(Collective collective) {
    return collective == Collective::reduce_scatter_v || collective == Collective::all_reduce ||
           collective == Collective::reduce;
}

bool has_root(Collective collective) {
    return collective == Collective::broadcast || collective == Collective::reduce ||
           collective == Collective::gather_v || collective == Collective::scatter_v;
}

bool is_message(Collective collective) {
    return collective == Collective::send || collective == Collective::receive;
}

std::int64_t ArrayProblem::block(int from, int to) const {
    switch (collective) {
        case Collective::all_gather_v:
            return size(from);
        case Collective::broadcast:
            return from == root && to != root ? elements() : 0;
        case Collective::gather_v:
            return to == root ? size(from) : 0;
        case Collective::scatter_v:
            return from == root ? size(to) : 0;
        case Collective::all_to_all_v:
            return exchange.count(from, to);
        default:
            return 0;
    }
}

Place ArrayProblem::given(int from, int to) const {
    switch (collective) {
        case Collective::all_gather_v:
            return source(from);
        case Collective::scatter_v:
            return {from, Region::source, begin(to)};
        case Collective::all_to_all_v:
            return {from, Region::source, exchange.sent_at(from, to)};
        default:
            return {from, Region::source, 0};
    }
}

Place ArrayProblem::taken(int from, int to) const {
    switch (collective) {
        case Collective::all_gather_v:
        case Collective::gather_v:
            return {to, Region::output, begin(from)};
        case Collective::all_to_all_v:
            return {to, Region::output, exchange.received_at(from, to)};
        default:
            return {to, Region::output, 0};
    }
}

std::int64_t ArrayProblem::source_size(int rank) const {
    switch (collective) {
        case Collective::all_gather_v:
        case Collective::gather_v:
            return size(rank);
        case Collective::broadcast:
        case Collective::scatter_v:
            return rank == root ? elements() : 0;
        case Collective::all_to_all_v:
            return exchange.sent_at(rank, ranks() - 1) + exchange.count(rank, ranks() - 1);
        default:
            return elements();
    }
}

std::int64_t ArrayProblem::output_size(int rank) const {
    switch (collective) {
        case Collective::reduce_scatter_v:
            return is_phase ? elements() : size(rank);
        case Collective::scatter_v:
            return size(rank);
        case Collective::broadcast:
            return rank == root ? 0 : elements();
        case Collective::reduce:
        case Collective::gather_v:
            return rank == root ? elements() : 0;
        case Collective::all_to_all_v:
            return exchange.received_at(ranks() - 1, rank) + exchange.count(ranks() - 1, rank);
        default:
            return elements();
    }
}

bool has_staged_variant(const BufferProblem &problem, std::int64_t bytes, bool forced) {
    constexpr std::int64_t max_bytes = 1 << 20;
    if (problem.per_node || problem.cuts.empty()) return false;
    if (problem.nodes.count() == 1) return forced || bytes <= max_bytes;
    return problem.collective == Collective::reduce ||
           (problem.in_order && reduces(problem.collective));
}

void cut_evenly(std::int64_t elements, int ranks, std::vector<std::int64_t> &cuts) {
    const std::int64_t line = elements >= 64 * std::int64_t{ranks} ? 64 : 1;
    const std::int64_t share = (elements / ranks + line - 1) / line * line;
    cuts.assign(1, 0);
    for (int rank = 0; rank < ranks; ++rank)
        cuts.push_back(rank + 1 == ranks ? elements : std::min(elements, cuts.back() + share));
}

}  // namespace vescomm::internal
