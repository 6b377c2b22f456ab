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

using Number = std::int64_t;

constexpr Op table[] = {
    {"sum", VESCOMM_SUM, [](Number a, Number b) { return a + b; }},
    {"prod", VESCOMM_PROD, [](Number a, Number b) { return a * b; }},
    {"min", VESCOMM_MIN, [](Number a, Number b) { return std::min(a, b); }},
    {"max", VESCOMM_MAX, [](Number a, Number b) { return std::max(a, b); }},
    {"avg", VESCOMM_AVERAGE, [](Number a, Number b) { return a + b; }},
    {"band", VESCOMM_BITWISE_AND, [](Number a, Number b) { return a & b; }},
    {"bor", VESCOMM_BITWISE_OR, [](Number a, Number b) { return a | b; }},
    {"bxor", VESCOMM_BITWISE_XOR, [](Number a, Number b) { return a ^ b; }},
    {"land", VESCOMM_LOGICAL_AND, [](Number a, Number b) { return Number{a != 0 && b != 0}; }},
    {"lor", VESCOMM_LOGICAL_OR, [](Number a, Number b) { return Number{a != 0 || b != 0}; }},
    {"lxor", VESCOMM_LOGICAL_XOR, [](Number a, Number b) { return Number{(a != 0) != (b != 0)}; }}};

}  // namespace

std::span<const Op> ops() {
    return table;
}

bool combines(const Op &op, Kind kind) {
    switch (kind) {
        case Kind::floating:
            return op.number < VESCOMM_BITWISE_AND;
        case Kind::integer:
            return true;
        case Kind::truth:
            return op.number != VESCOMM_AVERAGE;
        case Kind::complex:
            return op.number < VESCOMM_MIN;
    }
    return false;
}

bool is_idempotent(const Op &op) {
    static constexpr vescomm_op_t idempotent[] = {VESCOMM_MIN,         VESCOMM_MAX,
                                                  VESCOMM_BITWISE_AND, VESCOMM_BITWISE_OR,
                                                  VESCOMM_LOGICAL_AND, VESCOMM_LOGICAL_OR};
    return std::ranges::find(idempotent, op.number) != std::end(idempotent);
}

const Op &find_op(std::string_view name) {
    const auto found = std::ranges::find(table, name, &Op::name);
    if (found != std::end(table)) return *found;
    std::string known;
    for (const Op &op : table) known += (known.empty() ? "" : ", ") + std::string(op.name);
    throw std::invalid_argument("--op " + std::string(name) + ": there is " + known);
}

}  // namespace vescomm::perf
