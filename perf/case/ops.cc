// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/case/ops.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace vescomm::perf {
namespace {

constexpr Op table[] = {{"sum", VESCOMM_SUM},
                        {"prod", VESCOMM_PROD},
                        {"min", VESCOMM_MIN},
                        {"max", VESCOMM_MAX},
                        {"avg", VESCOMM_AVERAGE}};

}  // namespace

std::span<const Op> ops() {
    return table;
}

const Op &find_op(std::string_view name) {
    const auto found = std::ranges::find(table, name, &Op::name);
    if (found != std::end(table)) return *found;
    std::string known;
    for (const Op &op : table) known += (known.empty() ? "" : ", ") + std::string(op.name);
    throw std::invalid_argument("--op " + std::string(name) + ": there is " + known);
}

}  // namespace vescomm::perf
