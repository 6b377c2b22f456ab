// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/predict.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "schedule/rails.h"

namespace vescomm::internal {

namespace {

constexpr int max_ranks = 32;  // largest simulated number of ranks
constexpr int max_ranks_logarithmic = 64;  // for Growth::logarithmic: these have fewer steps
constexpr int max_of_a_node = 8;  // largest simulated node if there are several nodes

// True if every rank receives or contributes the whole vector. The size of the vector then does not
// change when ranks are left out.
bool keeps_whole(const AlgorithmEntry &algorithm) {
    return !algorithm.by_share && (algorithm.collective == Collective::all_reduce ||
                                   algorithm.collective == Collective::broadcast ||
                                   algorithm.collective == Collective::reduce);
}

constexpr int max_fills = 4;  // simulated number of times that an array fills the staging buffer

// Size of a scaled-down problem.
struct Scale {
    int nodes = 0;
    int of_a_node = 0;  // ranks of the largest node
    double vector = 1;  // factor on the size of the vector
    bool keeps_whole = false;  // the vector keeps its size when ranks are left out
    bool keeps_capacity = false;  // staging and partial keep their sizes
    bool keeps_partial = false;  // partial keeps its size
};

// A scaled-down problem and the machine for it.
class Part {
public:
    Part(const AnyProblem &whole, const ElementBytes &bytes, const Machine &machine, Scale scale)
        : problem(whole), whole_(*whole), scale_(scale), largest_(whole->nodes.largest()) {
        keep_ranks();
        problem->cuts = cuts();
        problem->root = kept_near(whole_.root);
        if (ArrayProblem *arrays = problem.arrays()) scale_arrays(*whole.arrays(), *arrays);
        shrink(machine, speed_for(whole, bytes, machine));
    }

    AnyProblem problem;
    Machine machine;

private:
    double share_of_node() const { return static_cast<double>(scale_.of_a_node) / largest_; }
    // Share of the cores of a host. Fewer nodes than a host has get fewer cores.
    double share_of_host(const Machine &whole) const {
        return share_of_node() * std::min(whole.nodes_per_host, scale_.nodes) /
               whole.nodes_per_host;
    }
    std::int64_t of_nodes(std::int64_t elements) const {
        return elements * scale_.nodes / whole_.nodes.count();
    }

    // Keeps evenly spaced nodes, and the first ranks of each.
    void keep_ranks() {
        const Nodes &nodes = whole_.nodes;
        for (int part = 0; part < scale_.nodes; ++part) {
            const auto node =
                static_cast<int>(static_cast<std::int64_t>(part) * nodes.count() / scale_.nodes);
            const auto members = nodes.members(node);
            const double size = static_cast<double>(members.size()) * share_of_node();
            const auto keep = std::max(std::size_t{1}, static_cast<std::size_t>(std::lround(size)));
            kept_.insert(kept_.end(), members.begin(),
                         members.begin() + static_cast<std::ptrdiff_t>(keep));
        }
        std::ranges::sort(kept_);
        std::vector<int> node_of;
        for (const int rank : kept_) node_of.push_back(nodes.node_of(rank));
        problem->nodes = Nodes::from_numbers(node_of);
    }
    void scale_arrays(const ArrayProblem &whole, ArrayProblem &part) const {
        part.exchange = {};
        if (whole.collective == Collective::all_to_all_v) part.exchange = exchange(whole);
        // Keep the size of chunks. Each node has its own chunk of the partial sums, and each shard
        // its own chunk of the staging buffer, so both shrink with the number of nodes. Exceptions:
        // logarithmic algorithms on the whole vector, and chains from node to node.
        if (whole.nodes.count() > 1 && !scale_.keeps_capacity) {
            if (!scale_.keeps_partial) part.partial.count = of_nodes(whole.partial.count);
            if (!scale_.keeps_whole) part.staging.count = of_nodes(whole.staging.count);
        }
    }
    int kept_near(int rank) const {
        const auto found = std::ranges::lower_bound(kept_, rank);
        return static_cast<int>(std::min(found - kept_.begin(), std::ssize(kept_) - 1));
    }

    std::vector<std::int64_t> cuts() const {
        auto cuts = std::ssize(kept_) == whole_.ranks() ? whole_.cuts : even_cuts();
        for (std::int64_t &cut : cuts) cut = std::llround(static_cast<double>(cut) * scale_.vector);
        return cuts;
    }
    // Keeps the position of the largest shard; all other shards are equal.
    std::vector<std::int64_t> even_cuts() const {
        if (whole_.cuts.empty()) return {};
        int owner = 0;
        for (int rank = 1; rank < whole_.ranks(); ++rank)
            if (whole_.size(rank) > whole_.size(owner)) owner = rank;
        const auto ranks = static_cast<std::int64_t>(whole_.ranks()), kept = std::ssize(kept_);
        std::int64_t largest = whole_.size(owner), total = 0;
        if (scale_.keeps_whole) {
            total = whole_.elements();
            largest = std::min(total, largest * ranks / kept);
        } else {
            total = largest + (whole_.elements() - largest) * (kept - 1) / (ranks - 1);
        }
        const int place = kept_near(owner);
        std::vector<std::int64_t> cuts{0};
        for (int rank = 0; rank < kept; ++rank) {
            const std::int64_t others = rank < place ? rank + 1 : rank;
            cuts.push_back((kept > 1 ? (total - largest) * others / (kept - 1) : 0) +
                           (rank >= place ? largest : 0));
        }
        return cuts;
    }

    Exchange exchange(const ArrayProblem &whole) const {
        const int ranks = whole.ranks();
        std::int64_t total = 0;
        for (int from = 0; from < ranks; ++from)
            for (int to = 0; to < ranks; ++to) total += whole.exchange.count(from, to);
        return Exchange::whole(
            static_cast<int>(kept_.size()),
            std::vector<std::int64_t>(kept_.size() * kept_.size(), total / ranks / ranks));
    }

    void shrink(const Machine &whole, const MemorySpeed &speed) {
        machine = whole;
        machine.stragglers.clear();
        machine.in_cache = speed;
        machine.reduce_of_width = {1, 1, 1, 1};  // already part of `speed`
        machine.in_cache.node *= share_of_node();
        machine.in_memory = machine.in_cache;
        if (whole.cores > 0)
            machine.cores =
                std::max(1, static_cast<int>(std::lround(whole.cores * share_of_host(whole))));
        machine.nodes_per_host = std::min(whole.nodes_per_host, scale_.nodes);
        if (whole.rails > 0) {
            const double rails = whole.rails * share_of_node();
            machine.rails = std::max(1, static_cast<int>(std::lround(rails)));
            machine.rail_bytes *= rails / machine.rails;
        }
        if (whole.nodes_per_switch >= whole_.nodes.count()) machine.nodes_per_switch = 0;
        else if (whole.nodes_per_switch > 0)
            machine.nodes_per_switch =
                std::max(1, static_cast<int>(of_nodes(whole.nodes_per_switch)));
    }

    const Problem &whole_;  // the common part
    Scale scale_;
    int largest_;
    std::vector<int> kept_;
};

double run(const AlgorithmEntry &algorithm, const AnyProblem &problem, const ElementBytes &bytes,
           const Machine &machine) {
    return simulate(
               problem, [&](int rank) { return algorithm.make(problem, rank); }, bytes, machine)
        .seconds;
}

// Extrapolates along the line through two points. A single point gives a constant.
class Line {
public:
    void add(double x, double y) {
        x_.push_back(x);
        y_.push_back(y);
    }
    // Never below the last point: a larger problem takes longer.
    double at(double x) const {
        if (x_.size() == 1) return y_[0];
        return std::max(y_[1], y_[1] + (y_[1] - y_[0]) * (x - x_[1]) / (x_[1] - x_[0]));
    }

private:
    std::vector<double> x_, y_;
};

double phases(double nodes) {
    return std::ceil(std::log2(nodes));
}

// Extrapolates from the times of n, 2 n and 4 n nodes. Each doubling of nodes adds a phase, and
// unless `keeps_whole` bytes in proportion to the nodes.
double follow_doublings(const std::vector<int> &counts, const std::vector<double> &seconds,
                        int count, bool keeps_whole) {
    if (seconds.size() == 1) return seconds[0];
    const double before = seconds[1] - seconds[0];
    const double last = std::max(seconds[2] - seconds[1], 0.0);
    // The second doubling adds twice the bytes of the first.
    const double bytes = keeps_whole ? 0 : std::clamp(2 * (last - before), 0.0, last);
    return seconds[2] + (last - bytes) * (phases(count) - phases(counts[2])) +
           bytes * 2 * (count - counts[2]) / counts[2];
}

// Factors on the size of the vector: 1, or two factors if the vector fills the staging buffer many
// times.
std::vector<double> vectors_for(const AnyProblem &problem) {
    const ArrayProblem *arrays = problem.arrays();
    const double fills =
        arrays != nullptr && arrays->staging.count > 0
            ? static_cast<double>(arrays->elements()) / static_cast<double>(arrays->staging.count)
            : 0;
    if (fills <= max_fills) return {1};
    return {max_fills / fills / 2, max_fills / fills};
}

}  // namespace

std::optional<double> predict(const AlgorithmEntry &algorithm, const AnyProblem &problem,
                              const ElementBytes &bytes, const Machine &machine) {
    const ArrayProblem *arrays = problem.arrays();
    if (arrays != nullptr && !arrays->exchange.is_whole()) return std::nullopt;
    const int count = problem->nodes.count(), largest = problem->nodes.largest();
    std::vector<int> sizes{largest}, counts{count};
    const bool logarithmic = algorithm.growth == Growth::logarithmic;
    const int max = logarithmic ? max_ranks_logarithmic : max_ranks;
    if (problem->ranks() > max) {
        const int max_of_one = count == 1 ? max : max_of_a_node;
        if (largest > max_of_one) sizes = {max_of_one / 2, max_of_one};
        // Powers of two: all phases of a tree over them are complete.
        const int max_nodes =
            max / static_cast<int>(std::bit_ceil(static_cast<unsigned>(sizes.back())));
        if (count > max_nodes) counts = {max_nodes / 2, max_nodes};
        if (count > max_nodes && logarithmic) counts.insert(counts.begin(), max_nodes / 4);
    }
    Line by_vector;
    for (const double vector : vectors_for(problem)) {
        Line by_size;
        for (const int size : sizes) {
            Line by_count;
            std::vector<double> seconds;
            for (const int nodes : counts) {
                const Part part(problem, bytes, machine,
                                {nodes, size, vector, keeps_whole(algorithm),
                                 keeps_whole(algorithm) && logarithmic, algorithm.in_order});
                if (!algorithm.solves(part.problem)) return std::nullopt;
                seconds.push_back(run(algorithm, part.problem, bytes, part.machine));
                by_count.add(nodes, seconds.back());
            }
            by_size.add(size, logarithmic
                                  ? follow_doublings(counts, seconds, count, keeps_whole(algorithm))
                                  : by_count.at(count));
        }
        by_vector.add(vector, by_size.at(largest));
    }
    return by_vector.at(1);
}

}  // namespace vescomm::internal
