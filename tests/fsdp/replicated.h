// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Models with replicated parameters.
#pragma once

#include <set>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {

// Vectors, scalars, a batch, an empty tensor and a whole unit of the odd model are replicated.
inline std::vector<UnitModel> with_replicated() {
    const std::set<std::string> names{"position", "bias", "scale", "experts", "nothing", "out"};
    std::vector<UnitModel> units = odd_model();
    for (UnitModel &unit : units)
        for (ParameterSpec &parameter : unit.parameters)
            if (names.contains(parameter.name)) parameter.flags = VESCOMM_FSDP_REPLICATED;
    return units;
}

// All parameters of the odd model are.
inline std::vector<UnitModel> all_replicated() {
    std::vector<UnitModel> units = odd_model();
    for (UnitModel &unit : units)
        for (ParameterSpec &parameter : unit.parameters) parameter.flags = VESCOMM_FSDP_REPLICATED;
    return units;
}

// A tied parameter and a frozen one. `flags`: of both.
inline std::vector<UnitModel> tied_and_frozen(std::uint32_t flags) {
    return {
        {"first", {{.name = "a", .shape = {7, 3}}, {.name = "b", .shape = {5}, .flags = flags}}},
        {"second",
         {{.name = "tied", .shape = {5}, .tied_to = 1},
          {.name = "frozen", .shape = {6}, .flags = flags | VESCOMM_FSDP_FROZEN}}}};
}

}  // namespace vescomm::fsdp::testing
