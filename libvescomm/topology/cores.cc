// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "topology/cores.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <vector>

namespace vescomm::internal {

namespace {

constexpr std::string_view digits = "0123456789abcdef";

}  // namespace

std::string usable_cores() {
    cpu_set_t set;
    std::string text;
    // The machine has more cores than fit into cpu_set_t: report all that fit.
    if (sched_getaffinity(0, sizeof set, &set) != 0) return std::string(CPU_SETSIZE / 4, 'f');
    for (int first = 0; first < CPU_SETSIZE; first += 4) {
        unsigned four = 0;
        for (int core = 0; core < 4; ++core)
            if (CPU_ISSET(first + core, &set)) four |= 1u << core;
        text += digits[four];
    }
    text.erase(text.find_last_not_of('0') + 1);
    return text;
}

int count_cores(std::span<const std::string> usable) {
    std::vector<unsigned> usable_by_any(CPU_SETSIZE / 4);
    for (const std::string &text : usable) {
        if (text.size() > usable_by_any.size() ||
            text.find_first_not_of(digits) != std::string::npos)
            continue;
        for (std::size_t i = 0; i < text.size(); ++i)
            usable_by_any[i] |= static_cast<unsigned>(digits.find(text[i]));
    }
    int count = 0;
    for (const unsigned four : usable_by_any) count += std::popcount(four);
    return std::max(1, count);
}

}  // namespace vescomm::internal
