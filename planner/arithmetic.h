// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Integer arithmetic that saturates instead of overflowing. All numbers in the planner are at least
// 0. `unbounded` stands for "larger than any buffer" and compares as such.
#pragma once

#include <cstdint>
#include <limits>
#include <numeric>

namespace vescomm::planner {

constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max();

constexpr std::int64_t plus(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? unbounded : sum;
}

constexpr std::int64_t times(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? unbounded : product;
}

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) noexcept {
    return a / b + (a % b != 0 ? 1 : 0);
}

constexpr std::int64_t round_down(std::int64_t a, std::int64_t step) noexcept {
    return a - a % step;
}

// Returns the smallest multiple of `step` that is at least `a`.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t step) noexcept {
    const std::int64_t over = a % step;
    return over == 0 ? a : plus(a, step - over);
}

// Returns a * b / c, rounded down, for a, b >= 0 and c > 0.
constexpr std::int64_t multiply_divide(std::int64_t a, std::int64_t b, std::int64_t c) noexcept {
    __extension__ typedef unsigned __int128 Wide;
    const Wide result = static_cast<Wide>(a) * static_cast<Wide>(b) / static_cast<Wide>(c);
    return result > static_cast<Wide>(unbounded) ? unbounded : static_cast<std::int64_t>(result);
}

constexpr std::int64_t least_common_multiple(std::int64_t a, std::int64_t b) noexcept {
    if (a == unbounded || b == unbounded) return unbounded;
    return times(a / std::gcd(a, b), b);
}

}  // namespace vescomm::planner
