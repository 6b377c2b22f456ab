// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/info_explain.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "schedule/forced.h"
#include "simulate/select.h"

namespace vescomm::internal {

namespace {

// For more ranks, the breakdown of the time is not simulated.
constexpr int max_ranks_shown = 256;
// The matrix of an exchange has a number for each pair of ranks.
constexpr int max_ranks_exchanging = 2048;

[[noreturn]] void refuse(const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, why);
}

constexpr int default_node_ranks = 4;

Collective collective_named(const std::string &name) {
    std::set<std::string_view> names;
    for (const AlgorithmEntry &entry : algorithms()) {
        if (name_of(entry.collective) == name) return entry.collective;
        names.insert(name_of(entry.collective));
    }
    std::string all;
    for (const std::string_view one : names) all += (all.empty() ? "" : ", ") + std::string(one);
    refuse("there is no collective \"" + name + "\"; there is: " + all);
}

Nodes nodes_of(const Question &question) {
    if (question.ranks == 0) {
        for (const int size : question.nodes)
            if (size < 1)
                refuse("--nodes: a node of " + std::to_string(size) +
                       " ranks; give at least 1 each");
        return Nodes::from_sizes(question.nodes.empty() ? std::vector{default_node_ranks}
                                                        : question.nodes);
    }
    if (question.nodes.size() > 1)
        refuse("--nodes: with --ranks it is the number of nodes, one number");
    const int count = question.nodes.empty() ? 1 : question.nodes[0];
    if (count < 1 || count > question.ranks)
        refuse("--nodes " + std::to_string(count) + ": --ranks " + std::to_string(question.ranks) +
               " can be on 1 to " + std::to_string(question.ranks) + " nodes");
    std::vector<int> sizes;
    for (int node = 0; node < count; ++node)
        sizes.push_back(question.ranks / count + (node < question.ranks % count ? 1 : 0));
    return Nodes::from_sizes(sizes);
}

// Relative sizes of shards from a file of numbers, one for each rank.
std::vector<double> read_weights(const std::string &path, int ranks) {
    std::ifstream file(path);
    if (!file) refuse("--ragged file:" + path + ": it cannot be read");
    std::vector<double> weights;
    double total = 0;
    for (double weight = 0; file >> weight;) {
        if (!(weight >= 0) || !std::isfinite(weight)) break;
        weights.push_back(weight);
        total += weight;
    }
    if (!file.eof() || weights.size() != static_cast<std::size_t>(ranks) || !(total > 0))
        refuse("--ragged file:" + path + ": give a number of at least 0 for each of " +
               std::to_string(ranks) + " ranks, one of them positive");
    return weights;
}

// Relative sizes of the shards of all ranks: equal, linear (rank + 1), zipf:S (1 / (rank + 1)^S),
// one-owner:F (rank 0 has the fraction F), file:PATH.
std::vector<double> weights_of(const std::string &ragged, int ranks) {
    const std::size_t colon = ragged.find(':');
    const std::string name = ragged.substr(0, colon);
    if (name == "file" && colon != std::string::npos)
        return read_weights(ragged.substr(colon + 1), ranks);
    double number = -1;
    if (colon != std::string::npos) {
        const char *begin = ragged.data() + colon + 1, *end = ragged.data() + ragged.size();
        const auto [at, error] = std::from_chars(begin, end, number);
        if (error != std::errc() || at != end) number = -1;
    }
    const bool takes_number = name == "zipf" || name == "one-owner";
    if ((!takes_number && name != "equal" && name != "linear") ||
        takes_number != (colon != std::string::npos) || (takes_number && !(number >= 0)) ||
        (name == "one-owner" && number > 1))
        refuse("--ragged " + ragged +
               ": give equal, linear, zipf:S, one-owner:F with F <= 1, or file:PATH");
    std::vector<double> weights;
    for (int rank = 0; rank < ranks; ++rank) {
        if (name == "linear") weights.push_back(rank + 1);
        else if (name == "zipf") weights.push_back(std::pow(rank + 1, -number));
        else if (name == "one-owner" && ranks > 1)
            weights.push_back(rank == 0 ? number : (1 - number) / (ranks - 1));
        else weights.push_back(1);
    }
    return weights;
}

std::vector<std::int64_t> cuts_of(const Question &question, int ranks) {
    const auto elements = static_cast<std::int64_t>(question.bytes / sizeof(float));
    std::vector<std::int64_t> cuts = {0};
    if (question.ragged == "equal") {
        for (int rank = 1; rank <= ranks; ++rank) cuts.push_back(elements * rank / ranks);
        return cuts;
    }
    const std::vector<double> weights = weights_of(question.ragged, ranks);
    double total = 0, before = 0;
    for (const double weight : weights) total += weight;
    for (const double weight : weights) {
        before += weight;
        const double cut = std::floor(static_cast<double>(elements) * before / total + 1e-6);
        cuts.push_back(std::min(elements, static_cast<std::int64_t>(cut)));
    }
    cuts.back() = elements;
    return cuts;
}

// An exchange in which every rank sends each receiver a block of the size of the receiver's shard.
Exchange exchange_of(const std::vector<std::int64_t> &cuts) {
    const std::size_t ranks = cuts.size() - 1;
    std::vector<std::int64_t> counts;
    counts.reserve(ranks * ranks);
    for (std::size_t from = 0; from < ranks; ++from)
        for (std::size_t to = 0; to < ranks; ++to) counts.push_back(cuts[to + 1] - cuts[to]);
    return Exchange::whole(static_cast<int>(ranks), std::move(counts));
}

// The part that is common to buffers and arrays.
Problem common_of(const Question &question) {
    Problem problem;
    problem.collective = collective_named(question.collective);
    problem.nodes = nodes_of(question);
    problem.in_order = question.reproducible;
    if (problem.collective != Collective::barrier && problem.collective != Collective::all_to_all_v)
        problem.cuts = cuts_of(question, problem.ranks());
    return problem;
}

// The parts of the staging buffer that arrays of f32 pass through.
void give_space(ArrayProblem &problem) {
    const SlotBytes sizes = slot_bytes(problem.nodes);
    problem.staging = {0, sizes.staging / 4};
    problem.partial = {0, sizes.partial / 4};
    problem.inlined = {12, max_inline_bytes / 4};
    problem.pairs = {.begin = sizes.staging / 4 + 64,
                     .stride = (max_pair_bytes + 64) / 4,
                     .beside = 12,
                     .count = max_pair_bytes / 4};
}

AnyProblem problem_of(const Question &question) {
    Problem common = common_of(question);
    const Collective collective = common.collective;
    const bool needs_arrays = collective == Collective::gather_v ||
                              collective == Collective::scatter_v ||
                              collective == Collective::all_to_all_v;
    if (!question.arrays && !needs_arrays) {
        BufferProblem problem(std::move(common));
        problem.per_node = question.per_node && collective == Collective::all_gather_v;
        return problem;
    }
    ArrayProblem problem(std::move(common));
    give_space(problem);
    if (collective != Collective::all_to_all_v) return problem;
    const int ranks = problem.ranks();
    if (ranks > max_ranks_exchanging)
        refuse("all_to_all_v of " + std::to_string(ranks) + " ranks; at most " +
               std::to_string(max_ranks_exchanging) + " are possible here");
    problem.exchange = exchange_of(cuts_of(question, ranks));
    return problem;
}

// The algorithm that is asked for. One in `question` takes precedence over the variable.
std::string forced_in(const Question &question, Collective collective) {
    return question.algorithm.empty() ? std::string(Forced::parse(question.forced).of(collective))
                                      : question.algorithm;
}

// The variants among which the library chooses.
std::vector<AnyProblem> variants_of(const Question &question) {
    std::vector<AnyProblem> variants = {problem_of(question)};
    const BufferProblem *buffers = variants[0].buffers();
    if (buffers == nullptr) return variants;
    const bool forced = !forced_in(question, buffers->collective).empty();
    if (!has_staged_variant(*buffers, static_cast<std::int64_t>(question.bytes), forced))
        return variants;
    ArrayProblem staged(*buffers);
    give_space(staged);
    variants.emplace_back(std::move(staged));
    return variants;
}

std::string where(const AnyProblem &problem) {
    if (problem->collective == Collective::barrier) return "";
    const BufferProblem *buffers = problem.buffers();
    if (buffers == nullptr) return ", arrays of the callers";
    return std::string(", one slab for each ") + (buffers->per_node ? "node" : "rank");
}

// Prints how the last rank to finish spends its time.
void show_times(const AlgorithmEntry &algorithm, const AnyProblem &problem,
                const Machine &machine) {
    const Simulation run = simulate(
        problem, [&](int rank) { return algorithm.make(problem, rank); }, {}, machine);
    int last = 0;
    for (int rank = 1; rank < problem->ranks(); ++rank)
        if (run.ranks[static_cast<std::size_t>(rank)].end >
            run.ranks[static_cast<std::size_t>(last)].end)
            last = rank;
    const RankTimes &times = run.ranks[static_cast<std::size_t>(last)];
    const auto share = [&](double seconds) {
        return times.end > 0 ? 100 * seconds / times.end : 0;
    };
    std::printf(
        "rank %d, which completes last, spends its time: copies %.0f %%, reduces %.0f %%, "
        "sends %.0f %%, waits %.0f %%, steps %.0f %%\n",
        last, share(times.copying), share(times.reducing), share(times.sending),
        share(times.waiting), share(times.stepping));
}

void show_row(const char *mark, const std::string &time, const AlgorithmEntry &entry,
              const char *addition) {
    std::printf("%s %11s  %.*s: %.*s%s\n", mark, time.c_str(), static_cast<int>(entry.name.size()),
                entry.name.data(), static_cast<int>(entry.summary.size()), entry.summary.data(),
                addition);
}

// The choice that the library makes.
Choice choice_for(const Question &question, std::span<const AnyProblem> variants) {
    const std::string forced = forced_in(question, variants[0]->collective);
    return select(variants, {}, question.machine, forced,
                  !question.algorithm.empty() || forced.empty() ? "" : "VESCOMM_ALGORITHM");
}

bool is_chosen(const Candidate &candidate, const Choice &choice) {
    return candidate.algorithm == choice.algorithm && candidate.variant == choice.variant;
}

}  // namespace

void explain(const Question &question) {
    const std::vector<AnyProblem> variants = variants_of(question);
    const AnyProblem &asked = variants[0];
    const Choice choice = choice_for(question, variants);
    const auto number_of = [](int count, const char *thing) {
        return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
    };
    std::printf("%s of %llu bytes over %s on %s%s\n", question.collective.c_str(),
                static_cast<unsigned long long>(question.bytes),
                number_of(asked->ranks(), "rank").c_str(),
                number_of(asked->nodes.count(), "node").c_str(), where(asked).c_str());

    std::vector<Candidate> candidates = choice.candidates;
    for (Candidate &candidate : candidates)
        candidate.seconds =
            predict(*candidate.algorithm, variants[candidate.variant], {}, question.machine);
    // Candidates without a prediction are last.
    std::ranges::stable_sort(candidates, {}, [](const Candidate &candidate) {
        return candidate.seconds.value_or(std::numeric_limits<double>::infinity());
    });
    for (const Candidate &candidate : candidates)
        show_row(is_chosen(candidate, choice) ? "*" : " ",
                 candidate.seconds ? time_text(*candidate.seconds) : "?", *candidate.algorithm,
                 candidate.variant > 0 ? "; through the staging buffer" : "");
    for (const AlgorithmEntry &entry : algorithms())
        if (entry.collective == asked->collective &&
            std::ranges::none_of(variants,
                                 [&](const AnyProblem &problem) { return entry.solves(problem); }))
            show_row("-", "", entry, "");
    const AnyProblem &problem = variants[choice.variant];
    std::printf("(*: chosen, because %s; -: does not suit this)\n", choice.why.c_str());
    if (problem->ranks() <= max_ranks_shown)
        show_times(*choice.algorithm, problem, question.machine);
    std::printf(
        "Times are predictions of a model: with the numbers that vescomm-info --measure has found "
        "here, or else with constants (topology/machine.h).\n");

    if (question.steps_of < 0) return;
    if (question.steps_of >= problem->ranks())
        refuse("--steps " + std::to_string(question.steps_of) + ": ranks are 0 to " +
               std::to_string(problem->ranks() - 1));
    std::printf("rank %d, offsets in f32 elements:\n%s", question.steps_of,
                describe(choice.algorithm->make(problem, question.steps_of)).c_str());
}

void explain_growth(Question question, const std::vector<int> &ranks, bool as_json) {
    const int of_a_node = question.nodes.empty() ? default_node_ranks : question.nodes[0];
    if (question.nodes.size() > 1 || of_a_node < 1)
        refuse("--nodes: with --table it is the number of ranks of a node, one number from 1");
    struct Row {
        int ranks;
        std::string algorithm;
        std::optional<double> seconds;  // nullopt: no prediction
        bool chosen;
    };
    std::vector<Row> rows;
    for (const int each : ranks) {
        question.ranks = each;
        question.nodes = {(each + of_a_node - 1) / of_a_node};
        const std::vector<AnyProblem> variants = variants_of(question);
        const Choice choice = choice_for(question, variants);
        for (const Candidate &candidate : choice.candidates) {
            // select() predicts only if there are several candidates and none is forced.
            const auto seconds = candidate.seconds
                                     ? candidate.seconds
                                     : predict(*candidate.algorithm, variants[candidate.variant],
                                               {}, question.machine);
            const std::string name(candidate.algorithm->name);
            rows.push_back({each, candidate.variant > 0 ? name + " (staging)" : name, seconds,
                            is_chosen(candidate, choice)});
        }
    }
    if (!as_json) {
        std::printf("%10s  %-14s %14s\n", "ranks", "algorithm", "us");
        for (const Row &row : rows) {
            char time[32] = "?";
            if (row.seconds) std::snprintf(time, sizeof time, "%.4g", *row.seconds * 1e6);
            std::printf("%10d  %-14s %14s%s\n", row.ranks, row.algorithm.c_str(), time,
                        row.chosen ? " *" : "");
        }
        return;
    }
    std::printf(
        "{\"schema\": \"vescomm-growth/1\", \"collective\": \"%s\", \"bytes\": %llu, "
        "\"of_a_node\": %d, \"rows\": [",
        question.collective.c_str(), static_cast<unsigned long long>(question.bytes), of_a_node);
    for (const Row &row : rows) {
        char time[32] = "null";
        if (row.seconds) std::snprintf(time, sizeof time, "%.6g", *row.seconds * 1e6);
        std::printf("%s\n{\"ranks\": %d, \"algorithm\": \"%s\", \"us\": %s, \"chosen\": %s}",
                    &row == rows.data() ? "" : ",", row.ranks, row.algorithm.c_str(), time,
                    row.chosen ? "true" : "false");
    }
    std::printf("\n]}\n");
}

}  // namespace vescomm::internal
