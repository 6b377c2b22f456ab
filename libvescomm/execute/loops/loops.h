// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "vescomm/vescomm.h"

namespace vescomm {

// to[i] = scale * (((start[i] + f[0] * s[0][i]) + f[1] * s[1][i]) + ...), with another operator
// perhaps. `start` is left out when it is null. Only sums of floats look at `scale`, and only
// premultiplied ones at the factors f.
//
// Sources are of the type that the loop is for, and are read from element `first` on. `start` is of
// the accumulator type, and it and `to` are those of element `first` already. They all may be the
// same array when their types are the same.
struct FoldArguments {
    const void *const *sources;
    int n;  // 1 to FoldLoop::most
    std::size_t first;
    const void *start;
    const double *factors;
    double scale;
    void *to;
    std::size_t count;
};
using Fold = void(const FoldArguments &) noexcept;

struct FoldLoop {
    Fold *run = nullptr;
    // Sources at once; the compiler makes a loop for each number. Each loop more writes a tile and
    // reads it again: 12 sources of bf16 take 5 to 13 percent less time at once than in two loops.
    std::size_t max = 0;
};

using Convert = void(void *to, const void *from, std::size_t count) noexcept;

// The loops themselves, compiled once for each instruction set. They know nothing of tiles, of
// partial sums, or of types for which there is no loop: that is reduce.cc.
struct Loops {
    // From sources of `from` to results of `to`. There is one from every accumulator type to
    // itself, for all operators; and for sums from f32 or bf16 to f32 or bf16. Otherwise none.
    FoldLoop (*fold)(vescomm_op_t op, vescomm_type_t to, vescomm_type_t from) noexcept;

    // Between types that can_convert() and that differ.
    Convert *(*convert)(vescomm_type_t to, vescomm_type_t from) noexcept;

    // In place, integers only, towards zero.
    void (*divide)(void *x, vescomm_type_t type, std::size_t count, int divisor) noexcept;

    // Copies past the caches. Other threads see the bytes after the next store fence only.
    void (*stream)(void *to, const void *from, std::size_t bytes) noexcept;

    // As in kernels.h.
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

}  // namespace vescomm
