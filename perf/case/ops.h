// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The reduction operators, with nccl-tests' names.
#pragma once

#include <span>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm::perf {

struct Op {
    std::string_view name;
    vescomm_op_t number;
};

std::span<const Op> ops();

// Throws std::invalid_argument, which lists the known names.
const Op &find_op(std::string_view name);

}  // namespace vescomm::perf
