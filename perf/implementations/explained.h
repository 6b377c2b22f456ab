// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>

#include "perf/worker/implementation.h"

namespace vescomm::perf {

// Extracts the algorithm and the predicted time from the text of vescomm_request_explain().
inline void take_explanation(const std::string &text, Costs &costs) {
    const std::size_t name = text.find(": "), end = text.find(',', name);
    if (name == std::string::npos || end == std::string::npos) return;
    costs.algorithm = text.substr(name + 2, end - name - 2);
    const std::string words = "\npredicted to take ";
    const std::size_t time = text.find(words);
    if (time == std::string::npos) return;
    char *unit = nullptr;
    const double number = std::strtod(text.c_str() + time + words.size(), &unit);
    costs.predicted_us = number * (std::strncmp(unit, " us", 3) == 0   ? 1
                                   : std::strncmp(unit, " ms", 3) == 0 ? 1e3
                                                                       : 1e6);
}

}  // namespace vescomm::perf
