// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// to[i] = scale * (((start[i] + f[0] * s[0][i]) + f[1] * s[1][i]) + ...), or with another operator
// instead of the sum. Only sums of floats and of complex numbers use `scale`, and only
// premultiplied sums the factors f.
//
// Sources have the type of the loop and are read from element `first` on. `start` has the
// accumulator type. `start` and `to` point to element `first` already. All arrays of one type may
// be the same array.
struct FoldArguments {
    const void *const *sources;
    int n;  // number of sources, 1 to FoldLoop::max
    std::size_t first;
    const void *start;  // nullptr: none
    const double *factors;
    double scale;
    void *to;
    std::size_t count;
};
using Fold = void(const FoldArguments &) noexcept;

struct FoldLoop {
    Fold *run = nullptr;
    // Most sources in one call; the compiler makes a loop for each number. Every further call
    // writes a tile and reads it again: 12 sources of bf16 take 5 to 13 percent less time in one
    // call than in two.
    std::size_t max = 0;
};

using Convert = void(void *to, const void *from, std::size_t count) noexcept;

// The loops, compiled once for each instruction set. Tiles, partial sums, and types without a loop
// are the work of reduce.cc.
struct Loops {
    // A loop from sources of type `from` to results of type `to`. Loops exist from every
    // accumulator type to itself, for all operators of the type, and from f32 or bf16 to f32 or
    // bf16, for sums. Otherwise `run` is nullptr.
    FoldLoop (*fold)(vescomm_op_t op, vescomm_type_t to, vescomm_type_t from) noexcept;

    // A loop between two different types; see can_convert().
    Convert *(*convert)(vescomm_type_t to, vescomm_type_t from) noexcept;

    // Divides integers in place, towards zero.
    void (*divide)(void *x, vescomm_type_t type, std::size_t count, int divisor) noexcept;

    // Copies; writes bypass the caches. Other threads see the bytes only after the next store
    // fence.
    void (*stream)(void *to, const void *from, std::size_t bytes) noexcept;

    // See Kernels::sum_of_squares().
    double (*sum_of_squares)(const void *from, vescomm_type_t type, std::size_t count) noexcept;
};

#define VESCOMM_DECLARE_LOOPS(isa)                                                            \
    namespace isa {                                                                           \
    FoldLoop find_fold(vescomm_op_t op, vescomm_type_t to, vescomm_type_t from) noexcept;     \
    FoldLoop find_bf16_sum(vescomm_type_t to, vescomm_type_t from) noexcept;                  \
    Convert *find_convert(vescomm_type_t to, vescomm_type_t from) noexcept;                   \
    void divide(void *x, vescomm_type_t type, std::size_t count, int divisor) noexcept;       \
    void stream(void *to, const void *from, std::size_t bytes) noexcept;                      \
    double sum_of_squares(const void *from, vescomm_type_t type, std::size_t count) noexcept; \
    }

VESCOMM_DECLARE_LOOPS(baseline)
#if defined(__x86_64__)
VESCOMM_DECLARE_LOOPS(x86_64_v3)
VESCOMM_DECLARE_LOOPS(x86_64_v4)
#endif

}  // namespace vescomm::internal
