// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string>

#include "perf/worker/implementation.h"

namespace vescomm::perf {

// Takes the method, and the time that is predicted for it, from the text of vescomm_gpu_explain():
//     method padded, because ...
//     *      12.5 us  padded: ...
inline void take_device_explanation(const std::string &text, Costs &costs) {
    const std::string word = "\nmethod ", mark = "\n* ";
    const std::size_t name = text.find(word), time = text.find(mark);
    if (name == std::string::npos) return;
    const std::size_t begin = name + word.size();
    costs.algorithm = text.substr(begin, text.find(',', begin) - begin);
    if (time != std::string::npos)
        costs.predicted_us = std::strtod(text.c_str() + time + mark.size(), nullptr);
}

}  // namespace vescomm::perf
