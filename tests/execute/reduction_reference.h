// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/execute/kernels_reference.h"

// A reference for reductions, element by element.
namespace vescomm::internal {

inline constexpr vescomm_op_t all_ops[] = {
    VESCOMM_SUM,         VESCOMM_AVERAGE,           VESCOMM_PROD,        VESCOMM_MIN,
    VESCOMM_MAX,         VESCOMM_PREMULTIPLIED_SUM, VESCOMM_BITWISE_AND, VESCOMM_BITWISE_OR,
    VESCOMM_BITWISE_XOR, VESCOMM_LOGICAL_AND,       VESCOMM_LOGICAL_OR,  VESCOMM_LOGICAL_XOR};

using Arrays = std::vector<std::vector<char>>;

// A reduction without its arrays.
struct Case {
    vescomm_op_t op;
    vescomm_type_t type;
    vescomm_type_t to_type;
    std::size_t sources;
    std::size_t partials = 0;
    bool started = false;

    std::string text() const {
        return name_of_op(op) + " of " + std::to_string(sources) + " " + name_of_type(type) +
               " and " + std::to_string(partials) + " partials into " + name_of_type(to_type) +
               (started ? ", after another partial" : "");
    }
    int divisor() const { return op == VESCOMM_AVERAGE ? 7 : 1; }
};

// Factors of a premultiplied sum: fractions, NaN, and factors outside the range of an i64.
inline const double factors[] = {1,     0.5, -3.25, 2.75,  1e300, -1e300, 0,   7.0, 1.0 / 3,
                                 -1e-3, 100, 1e9,   -1e18, 5,     NAN,    -11, 0.1, 2,
                                 3,     4,   5,     6,     7,     8,      9};

// Combines one element in the accumulator type A: float, double, or an integer of 64 bits.
template <typename A>
A combine(vescomm_op_t op, A a, A b) {
    switch (op) {
        case VESCOMM_PROD:
            return a * b;
        case VESCOMM_MIN:
        case VESCOMM_MAX:
            if constexpr (std::is_floating_point_v<A>) {
                if (std::isnan(a)) return a;
                if (std::isnan(b)) return b;
                if (a == 0 && b == 0) return (op == VESCOMM_MIN) == std::signbit(a) ? a : b;
            }
            return op == VESCOMM_MIN ? std::min(a, b) : std::max(a, b);
        default:
            return a + b;
    }
}

template <typename A>
std::uint64_t expected_float(const Case &c, const Arrays &sources, const Arrays &partials,
                             const std::vector<char> &start, std::size_t i) {
    bool started = c.started;
    A sum = started ? static_cast<A>(float_at(start.data(), accumulator_of(c.type), i)) : A{};
    const auto take = [&](A x) {
        sum = started ? combine(c.op, sum, x) : x;
        started = true;
    };
    for (std::size_t k = 0; k < c.sources; ++k) {
        const A x = static_cast<A>(float_at(sources[k].data(), c.type, i));
        take(c.op == VESCOMM_PREMULTIPLIED_SUM ? static_cast<A>(factors[k]) * x : x);
    }
    for (std::size_t k = 0; k < c.partials; ++k)
        take(static_cast<A>(float_at(partials[k].data(), accumulator_of(c.type), i)));
    if (c.op == VESCOMM_AVERAGE) sum *= A{1} / static_cast<A>(c.divisor());
    return float_bits(c.to_type, sum);
}

inline std::uint64_t whole_factor(double factor) {
    if (std::isnan(factor)) return 0;
    if (factor >= 0x1p63) return INT64_MAX;
    if (factor < -0x1p63) return static_cast<std::uint64_t>(INT64_MIN);
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(factor));
}

// The operator on truth values that an operator on bool is.
inline vescomm_op_t of_truth(vescomm_op_t op) {
    switch (op) {
        case VESCOMM_SUM:
        case VESCOMM_MAX:
        case VESCOMM_BITWISE_OR:
            return VESCOMM_LOGICAL_OR;
        case VESCOMM_PROD:
        case VESCOMM_MIN:
        case VESCOMM_BITWISE_AND:
            return VESCOMM_LOGICAL_AND;
        case VESCOMM_BITWISE_XOR:
            return VESCOMM_LOGICAL_XOR;
        default:
            return op;
    }
}

inline bool is_logical(vescomm_op_t op) {
    return op == VESCOMM_LOGICAL_AND || op == VESCOMM_LOGICAL_OR || op == VESCOMM_LOGICAL_XOR;
}

// Combines one integer in 64 bits. `combine` has the comparisons.
inline std::uint64_t combine_bits(vescomm_op_t op, std::uint64_t a, std::uint64_t b) {
    switch (op) {
        case VESCOMM_BITWISE_AND:
        case VESCOMM_LOGICAL_AND:
            return a & b;
        case VESCOMM_BITWISE_OR:
        case VESCOMM_LOGICAL_OR:
            return a | b;
        case VESCOMM_BITWISE_XOR:
        case VESCOMM_LOGICAL_XOR:
            return a ^ b;
        default:
            return combine(op, a, b);
    }
}

// Computes all integers in 64 bits, sign-extended if they are signed. Sums and products are correct
// in their low bits; comparisons are those of I, which is std::int64_t or std::uint64_t.
template <typename I>
std::uint64_t expected_integer(const Case &c, const Arrays &sources, const Arrays &partials,
                               const std::vector<char> &start, std::size_t i) {
    const int unused = 64 - static_cast<int>(8 * size_of(c.type));
    const auto extended = [unused](std::uint64_t bits) {
        return static_cast<std::uint64_t>(static_cast<I>(bits << unused) >> unused);
    };
    const auto at = [&](const std::vector<char> &array) {
        const std::uint64_t x = extended(bits_at(array.data(), c.type, i));
        return is_logical(c.op) ? std::uint64_t{x != 0} : x;
    };
    bool started = c.started;
    std::uint64_t sum = started ? at(start) : 0;
    const auto take = [&](std::uint64_t x) {
        if (!started) sum = x;
        else if (c.op == VESCOMM_MIN || c.op == VESCOMM_MAX)
            sum = static_cast<std::uint64_t>(combine(c.op, static_cast<I>(sum), static_cast<I>(x)));
        else sum = combine_bits(c.op, sum, x);
        started = true;
    };
    for (std::size_t k = 0; k < c.sources; ++k) {
        const std::uint64_t x = at(sources[k]);
        take(c.op == VESCOMM_PREMULTIPLIED_SUM ? whole_factor(factors[k]) * x : x);
    }
    for (std::size_t k = 0; k < c.partials; ++k) take(at(partials[k]));
    if (c.op == VESCOMM_AVERAGE)
        sum =
            static_cast<std::uint64_t>(static_cast<I>(extended(sum)) / static_cast<I>(c.divisor()));
    return sum;
}

// The product of complex numbers whose parts are of type A.
template <typename A>
std::vector<char> expected_product(const Case &c, const Arrays &sources, const Arrays &partials,
                                   std::size_t count, const std::vector<char> &start) {
    const vescomm_type_t part = part_of(c.type);
    std::vector<char> to(count * size_of(c.type));
    for (std::size_t i = 0; i < count; ++i) {
        bool started = false;
        A real{}, imaginary{};
        const auto take = [&](const std::vector<char> &array) {
            const auto x = static_cast<A>(float_at(array.data(), part, 2 * i));
            const auto y = static_cast<A>(float_at(array.data(), part, 2 * i + 1));
            const A a = real, b = imaginary;
            real = started ? a * x - b * y : x;
            imaginary = started ? a * y + b * x : y;
            started = true;
        };
        if (c.started) take(start);
        for (std::size_t k = 0; k < c.sources; ++k) take(sources[k]);
        for (std::size_t k = 0; k < c.partials; ++k) take(partials[k]);
        set_bits(to.data(), part, 2 * i, float_bits(part, static_cast<double>(real)));
        set_bits(to.data(), part, 2 * i + 1, float_bits(part, static_cast<double>(imaginary)));
    }
    return to;
}

// The first `count` elements of the result. `start` has the accumulator type.
inline std::vector<char> expected(const Case &c, const Arrays &sources, const Arrays &partials,
                                  std::size_t count, const std::vector<char> &start) {
    if (is_complex(c.type)) {
        if (c.op == VESCOMM_PROD)
            return (c.type == VESCOMM_C64
                        ? expected_product<float>
                        : expected_product<double>)(c, sources, partials, count, start);
        Case of_parts = c;
        of_parts.type = of_parts.to_type = part_of(c.type);
        return expected(of_parts, sources, partials, 2 * count, start);
    }
    Case on_truth = c;
    on_truth.op = of_truth(c.op);
    const Case &what = c.type == VESCOMM_BOOL ? on_truth : c;
    const bool is_signed = c.type == VESCOMM_I8 || c.type == VESCOMM_I16 || c.type == VESCOMM_I32 ||
                           c.type == VESCOMM_I64;
    const auto element = c.type == VESCOMM_F64 ? expected_float<double>
                         : is_float(c.type)    ? expected_float<float>
                         : is_signed           ? expected_integer<std::int64_t>
                                               : expected_integer<std::uint64_t>;
    std::vector<char> to(count * size_of(c.to_type));
    for (std::size_t i = 0; i < count; ++i)
        set_bits(to.data(), c.to_type, i, element(what, sources, partials, start, i));
    return to;
}

inline Arrays random_arrays(std::mt19937_64 &random, vescomm_type_t type, std::size_t n,
                            std::size_t count) {
    Arrays arrays;
    for (std::size_t k = 0; k < n; ++k) arrays.push_back(random_elements(random, type, count));
    return arrays;
}

}  // namespace vescomm::internal
