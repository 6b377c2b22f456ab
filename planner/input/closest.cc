// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/closest.h"

#include <algorithm>
#include <numeric>

namespace vescomm::planner {
namespace {

// Returns the number of letters to insert, delete or replace. Keeps one row of the table.
// Source: Wagner and Fischer, "The String-to-String Correction Problem", JACM 21(1), 1974.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (const char letter : a) {
        std::size_t diagonal = row[0]++;
        for (std::size_t i = 0; i < b.size(); ++i) {
            const std::size_t exchanged = diagonal + (letter == b[i] ? 0 : 1);
            diagonal = row[i + 1];
            row[i + 1] = std::min({exchanged, row[i] + 1, diagonal + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string> &known) {
    constexpr std::size_t longest = 64;
    constexpr std::size_t far = 3;  // largest distance of a typing mistake
    if (word.size() > longest) return "";
    const std::string *best = nullptr;
    std::size_t min = far + 1;
    for (const std::string &candidate : known) {
        const bool begun = word.size() > 2 && candidate.starts_with(word);
        const std::size_t letters = begun ? 0 : distance(word, candidate);
        if (letters >= min) continue;
        min = letters;
        best = &candidate;
    }
    return best == nullptr ? "" : " (did you mean " + *best + "?)";
}

}  // namespace vescomm::planner
