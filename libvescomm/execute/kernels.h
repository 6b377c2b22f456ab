// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/types.h"
#include "execute/loops/loops.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// The type of partial results: f32 for floats of 16 and 8 bits, otherwise the type itself.
constexpr vescomm_type_t accumulator_of(vescomm_type_t type) noexcept {
    const bool narrow = type == VESCOMM_BF16 || type == VESCOMM_F16 || type == VESCOMM_F8E4M3 ||
                        type == VESCOMM_F8E5M2;
    return narrow ? VESCOMM_F32 : type;
}

constexpr bool is_type(vescomm_type_t type) noexcept {
    return type >= VESCOMM_F32 && type <= last_type;
}

constexpr bool is_float(vescomm_type_t type) noexcept {
    return type >= VESCOMM_F32 && type <= VESCOMM_F8E5M2;
}

constexpr bool is_integer(vescomm_type_t type) noexcept {
    return type >= VESCOMM_I8 && type <= VESCOMM_U64;
}

constexpr bool is_complex(vescomm_type_t type) noexcept {
    return type == VESCOMM_C64 || type == VESCOMM_C128;
}

// True for any float to and from f32 and f64, and for any type to itself.
constexpr bool can_convert(vescomm_type_t to, vescomm_type_t from) noexcept {
    const auto wide = [](vescomm_type_t t) { return t == VESCOMM_F32 || t == VESCOMM_F64; };
    if (to == from) return is_type(to);
    return is_float(to) && is_float(from) && (wide(to) || wide(from));
}

// True if the operator is defined for elements of this type.
constexpr bool can_combine(vescomm_op_t op, vescomm_type_t type) noexcept {
    if (!is_type(type) || op < VESCOMM_SUM || op > last_op) return false;
    const bool scales = op == VESCOMM_AVERAGE || op == VESCOMM_PREMULTIPLIED_SUM;
    if (type == VESCOMM_BOOL) return !scales;
    if (is_complex(type)) return scales || op == VESCOMM_SUM || op == VESCOMM_PROD;
    return op < VESCOMM_BITWISE_AND || is_integer(type);
}

// True for every type to itself and to its accumulator, for every operator of the type.
constexpr bool can_reduce(vescomm_type_t to, vescomm_type_t from) noexcept {
    return is_type(from) && (to == from || to == accumulator_of(from));
}

// Parameters of a reduction. The default is a plain sum.
struct Reduction {
    // VESCOMM_AVERAGE is equal to VESCOMM_SUM: the divisor makes the average.
    vescomm_op_t op = VESCOMM_SUM;
    // Divides finished sums; at least 1. Floats and complex numbers are multiplied by 1 / divisor
    // in the accumulator type; integers are divided, towards zero. Must be 1 for other operators.
    int divisor = 1;
    // VESCOMM_PREMULTIPLIED_SUM: one factor for each source (not for partials). It is rounded to
    // the accumulator type; for integers towards zero, to an i64.
    const double *factors = nullptr;
    // A partial before the sources; nullptr: none.
    const void *start = nullptr;
    // Writes bypass the caches, for a `to` that is not read soon. From about the size of the last
    // cache on, sums of two bf16 took a fifth less time; sums of f32 took up to a fifth more.
    bool streaming = false;
};

// The loops that touch every byte: conversion and reduction of host memory.
//
// The result of an element depends on the inputs of that element alone. Its bits do not depend on
// the instruction set, the alignment, the count, or the element's place in the array: one call may
// be cut into several. Reductions and changes of type give one NaN only: positive, quiet, without
// payload; 0x7f for both f8, as in PyTorch.
//
// Pointers must be aligned to their element, complex ones to one part: see alignment_of().
//
// Assumes the default floating-point environment (round to nearest, subnormals kept).
struct Kernels {
    // One of isa_names.
    const char *isa;
    Loops loops;

    // Copies `count` elements, changing their type; see can_convert(). Rounds to nearest, ties to
    // even, once. A number that is too large becomes infinity; in f8e4m3, which has no infinity,
    // NaN (as in PyTorch; OCP's specification of 8-bit floats calls it the non-saturating mode).
    // The ranges must not overlap. If the types are equal, the ranges may be equal.
    //
    // `streaming`: writes bypass the caches, for a `to` that is not read soon. From about the size
    // of the last cache on, copies take a third less time; changes of type do not get faster.
    void convert(void *to, vescomm_type_t to_type, const void *from, vescomm_type_t from_type,
                 std::size_t count, bool streaming = false) const noexcept;

    // Combines `sources` of `type` and then `partials` of accumulator_of(type), which are results
    // of earlier reductions, one after another in this order (after `how.start`, if there is one):
    //
    //     to[i] = (((sources[0][i] + sources[1][i]) + ...) + partials[0][i]) + ...
    //
    // computed in the accumulator type and rounded to `to_type` once; see can_reduce() and
    // can_combine(). Integers wrap modulo 2^bits, also averages before they are divided. Minimum
    // and maximum are those of IEEE 754-2019: NaN if any is NaN, as in PyTorch and NumPy; -0 is
    // less than +0. A product of complex numbers is (ac - bd) + (ad + bc)i. Every bool is 1 or 0
    // afterwards.
    //
    // There must be at least one source or partial. Each of them may be `to` itself if the types
    // are equal; otherwise it must not overlap `to`.
    //
    // Cost: one pass; every source is read once and `to` written once, for any number of them.
    void reduce(const Reduction &how, std::span<const void *const> sources, vescomm_type_t type,
                std::span<const void *const> partials, void *to, vescomm_type_t to_type,
                std::size_t count) const noexcept;

    // The loop with which reduce() combines `sources` contributions, all in one call; nullptr: it
    // takes several calls, or other loops as well.
    Fold *single_loop(const Reduction &how, std::size_t sources, vescomm_type_t type,
                      vescomm_type_t to_type) const noexcept;

    // Sum of x * x over f32 or bf16, in f64. Element i is added to running sum i mod 64; the 64
    // sums are then halved until one is left (0 += 32, 1 += 33, ...). Unlike the functions above,
    // the order depends on the first element of the call: equal bits need equal cuts.
    double sum_of_squares(const void *from, vescomm_type_t type, std::size_t count) const noexcept {
        return loops.sum_of_squares(from, type, count);
    }
};

// The fastest kernels that this machine can run; chosen once.
const Kernels &kernels() noexcept;

// All kernels that this machine can run, slowest first, for tests.
std::span<const Kernels> supported_kernels() noexcept;

}  // namespace vescomm::internal
