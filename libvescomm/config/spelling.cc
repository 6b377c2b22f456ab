// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "config/spelling.h"

#include <algorithm>
#include <vector>

namespace vescomm::internal {

namespace {

// Number of letters that must be changed, removed, added, or swapped with the next letter to turn
// one text into the other (optimal string alignment distance: no letter is edited twice).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> edits(a.size() + 1,
                                                std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) edits[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j) edits[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i)
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
            edits[i][j] =
                std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, edits[i - 1][j - 1] + change});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
        }
    return edits[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view given, std::span<const std::string> known) {
    // Names come from the environment. Much longer names than ours are skipped to bound the cost.
    constexpr std::size_t max_size = 64;
    constexpr std::size_t prefix = sizeof("VESCOMM_") - 1;
    if (given.size() > max_size || given.size() <= prefix) return {};
    std::string best;
    std::size_t min = std::max<std::size_t>(1, (given.size() - prefix) / 3);
    for (const std::string &name : known) {
        const std::size_t shorter = std::min(given.size(), name.size());
        // One name begins with the other: VESCOMM_TIMEOUT and VESCOMM_LOG_LEVEL are near a known
        // name, VESCOMM_ alone is not.
        const bool cut =
            shorter > prefix + 2 && given.substr(0, shorter) == name.substr(0, shorter);
        const std::size_t edits = cut ? 1 : distance(given, name);
        if (edits > min || (!best.empty() && edits == min)) continue;
        min = edits;
        best = name;
    }
    return best;
}

}  // namespace vescomm::internal
