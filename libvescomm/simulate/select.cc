// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/select.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace vescomm::internal {

namespace {

constexpr double tie = 0.9;

std::string words(const AnyProblem &problem) {
    std::string text(name_of(problem->collective));
    if (problem->collective == Collective::barrier) return text;
    const BufferProblem *buffers = problem.buffers();
    text += buffers == nullptr  ? " on arrays"
            : buffers->per_node ? " on a buffer of one slab for each node"
                                : " on a buffer of one slab for each rank";
    if (problem->in_order && reduces(problem->collective)) text += " in the order of ranks";
    return text;
}

// True if all ranks know the whole problem. For an all_to_all_v each rank knows only its own
// counts, so predictions would differ between ranks.
bool is_known_to_all(const AnyProblem &problem) {
    return problem->collective != Collective::all_to_all_v;
}

// The candidate with the least predicted time. Of candidates that are about as fast, the first.
const Candidate &best_of(const std::vector<Candidate> &candidates) {
    const Candidate *best = &candidates.front();
    for (const Candidate &candidate : candidates)
        if (candidate.seconds && best->seconds && *candidate.seconds < tie * *best->seconds)
            best = &candidate;
    return *best;
}

std::string why(const Candidate &best, const Choice &choice, std::span<const AnyProblem> variants) {
    const AnyProblem &problem = variants.front();
    if (choice.candidates.size() == 1) return "it is the only one for " + words(problem);
    if (!is_known_to_all(problem))
        return "it is the first for " + words(problem) + ", of which no rank knows all counts";
    if (!best.seconds) return "it is the first for " + words(problem);
    std::string text = "it is predicted to take " + time_text(*best.seconds);
    bool first = true, faster = false;
    for (const Candidate &other : choice.candidates) {
        if (&other == &best || !other.seconds) continue;
        const char *path = other.variant == best.variant ? ""
                           : variants[other.variant].arrays() == nullptr
                               ? " in the buffer"
                               : " through the staging buffer";
        text += fmt::format("{} {}{}{} {}", first ? ";" : ",", other.algorithm->name, path,
                            first ? " takes" : "", time_text(*other.seconds));
        first = false;
        faster = faster || *other.seconds < *best.seconds;
    }
    return text + (faster ? "; times within a tenth count as equal, and the first of the table is "
                            "taken"
                          : "");
}

}  // namespace

std::string time_text(double seconds) {
    // A number that is rounded to 1000 gets the next unit.
    if (seconds < 999.5e-6) return fmt::format("{:.3g} us", seconds * 1e6);
    if (seconds < 999.5e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
    return fmt::format("{:.3g} s", seconds);
}

Choice select(std::span<const AnyProblem> variants, const ElementBytes &bytes,
              const Machine &machine, std::string_view forced, std::string_view variable) {
    const AnyProblem &problem = variants.front();
    Choice choice;
    std::vector<std::string_view> names;
    for (std::size_t variant = 0; variant < variants.size(); ++variant)
        for (const AlgorithmEntry &entry : algorithms()) {
            if (entry.collective != problem->collective || !entry.solves(variants[variant]))
                continue;
            // Several variants may have one algorithm.
            if (std::ranges::find(names, entry.name) == names.end()) names.push_back(entry.name);
            choice.candidates.push_back({&entry, variant});
            if (entry.name != forced || choice.algorithm != nullptr) continue;
            choice.algorithm = &entry;
            choice.variant = variant;
        }
    if (choice.candidates.empty() || (!forced.empty() && choice.algorithm == nullptr))
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    (variable.empty() ? std::string() : std::string(variable) + ": ") +
                        "there is no algorithm " +
                        (forced.empty() ? std::string() : "\"" + std::string(forced) + "\" ") +
                        "for " + words(problem) +
                        (names.empty() ? "; use the other sharing"
                                       : fmt::format("; there is: {}", fmt::join(names, ", "))));
    if (choice.algorithm != nullptr) {
        choice.why =
            (variable.empty() ? "the caller" : std::string(variable)) + " asked for it by name";
        return choice;
    }
    if (choice.candidates.size() > 1)
        for (Candidate &candidate : choice.candidates)
            candidate.seconds =
                predict(*candidate.algorithm, variants[candidate.variant], bytes, machine);
    const Candidate &best =
        is_known_to_all(problem) ? best_of(choice.candidates) : choice.candidates.front();
    choice.algorithm = best.algorithm;
    choice.variant = best.variant;
    choice.why = why(best, choice, variants);
    return choice;
}

}  // namespace vescomm::internal
