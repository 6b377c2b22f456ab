// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regex>
#include <set>
#include <string>

namespace vescomm::internal::testing_support {

// Returns the ranks that an error sentence names as failed: those before "died", "did not come",
// "has been silent" and so on. The rank that waited is not among them.
inline std::set<int> named_ranks(const std::string &why) {
    std::set<int> ranks;
    static const std::regex list(R"(^ranks? ([0-9, and]+))");
    std::smatch match;
    if (!std::regex_search(why, match, list)) return ranks;
    static const std::regex number(R"([0-9]+)");
    const std::string text = match[1];
    for (std::sregex_iterator each(text.begin(), text.end(), number), end; each != end; ++each)
        ranks.insert(std::stoi(each->str()));
    // "rank 1 of 4 died": the second number is a count.
    if (std::regex_search(why, std::regex(R"(^rank [0-9]+ of [0-9]+)")))
        ranks = {std::stoi(match[1])};
    return ranks;
}

}  // namespace vescomm::internal::testing_support
