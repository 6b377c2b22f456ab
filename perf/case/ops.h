// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The reduction operators, with the names of nccl-tests and, for bitwise and logical ones, of MPI.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "perf/case/types.h"
#include "vescomm/vescomm.h"

namespace vescomm::perf {

struct Op {
    std::string_view name;
    vescomm_op_t number;
    // Combines two whole numbers; avg: adds them.
    std::int64_t (*combine)(std::int64_t, std::int64_t);
};

std::span<const Op> ops();

// True if elements of this kind have the operator.
bool combines(const Op &op, Kind kind);

// True: a result that is combined with the same values again stays the same.
bool is_idempotent(const Op &op);

// Throws std::invalid_argument, which lists the known names.
const Op &find_op(std::string_view name);

}  // namespace vescomm::perf
