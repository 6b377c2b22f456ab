// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/select.h"

#include "base/error.h"

namespace vescomm {

Choice select(const Problem &problem, std::string_view forced) {
    std::string names;
    const AlgorithmEntry *best = nullptr;
    for (const AlgorithmEntry &entry : algorithms()) {
        if (entry.collective != problem.collective || !entry.suits(problem)) continue;
        names += (names.empty() ? "" : ", ") + std::string(entry.name);
        if (entry.name == forced) return {&entry, "the caller asked for it by name"};
        if (best == nullptr) best = &entry;
    }
    const std::string what = std::string(name_of(problem.collective)) +
                             (problem.arrays     ? " on arrays"
                              : problem.per_node ? " on a buffer of one slab for each node"
                                                 : " on a buffer of one slab for each rank");
    if (!forced.empty() || best == nullptr)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "there is no algorithm " +
                        (forced.empty() ? std::string() : "\"" + std::string(forced) + "\" ") +
                        "for " + what +
                        (names.empty() ? "; use the other sharing" : "; there is: " + names));
    return {best, "it is the best for " + what};
}

}  // namespace vescomm
