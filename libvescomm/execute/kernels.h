// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "vescomm/vescomm.h"

namespace vescomm {

// The loops that touch every byte: conversion and reduction of host memory.
//
// What comes out for an element depends on what went in for that element alone. To the last bit, it
// does not depend on the instruction set, the alignment, the count, or the element's place in the
// array: cutting one call into several changes nothing. Where a sum or a narrowing to 16 bits gives
// a NaN, it is always the positive quiet one without payload.
//
// Pointers are aligned to their element (2 to 8 bytes); nothing more is needed.
//
// Assumes the default floating-point environment (round to nearest, subnormals kept).
struct Kernels {
    // One of isa_names.
    const char *isa;

    // Copies `count` elements, changing their type; see can_convert(). Narrowing rounds to nearest,
    // ties to even; infinities and NaNs stay what they are. The ranges do not overlap, except that
    // they may be the same when the types are.
    void (*convert)(void *to, vescomm_type_t to_type, const void *from, vescomm_type_t from_type,
                    std::size_t count) noexcept;

    // to[i] = scale * (((sources[0][i] + sources[1][i]) + sources[2][i]) + ...), computed in f32 in
    // exactly this order and rounded to `to_type` once. With `accumulate` the sum begins with the
    // old to[i], which is therefore scaled too. Both types must satisfy can_reduce(); n >= 1.
    //
    // A source may be `to` itself when the types are equal; otherwise they do not overlap.
    //
    // Cost: one pass; every source is read once and `to` written once, for any n.
    void (*reduce)(const void *const *sources, int n, vescomm_type_t source_type, void *to,
                   vescomm_type_t to_type, std::size_t count, bool accumulate,
                   float scale) noexcept;

    // Sum of x * x over f32 or bf16 (can_reduce()), in f64. Element i goes to running sum i mod 64;
    // the 64 are then halved until one is left (0 += 32, 1 += 33, ...). Unlike the above, this
    // order counts from the first element of the call: cut in the same places to get the same bits.
    double (*sum_of_squares)(const void *from, vescomm_type_t type, std::size_t count) noexcept;
};

// The fastest that this machine can run; chosen once.
const Kernels &kernels() noexcept;

// All that this machine can run, slowest first, for tests.
std::span<const Kernels> supported_kernels() noexcept;

// f32 to and from bf16, f16 and f64; any type to itself.
constexpr bool can_convert(vescomm_type_t to, vescomm_type_t from) noexcept {
    if (to == from) return to >= VESCOMM_F32 && to <= VESCOMM_U64;
    const vescomm_type_t other = from == VESCOMM_F32 ? to : from;
    return (to == VESCOMM_F32 || from == VESCOMM_F32) &&
           (other == VESCOMM_BF16 || other == VESCOMM_F16 || other == VESCOMM_F64);
}

constexpr bool can_reduce(vescomm_type_t type) noexcept {
    return type == VESCOMM_F32 || type == VESCOMM_BF16;
}

}  // namespace vescomm
