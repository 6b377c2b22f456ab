// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>

// What the loops need of the compiler, which vectorises them. For the files of this folder that are
// compiled once for each instruction set; VESCOMM_ISA names it.
//
// The promise that an element's result is the same everywhere rests on three things: no contraction
// of a * b + c (-ffp-contract=off), one fixed order of operations, and canonical NaNs, because
// which operand's payload an addition keeps depends on the order that the compiler gives them.
//
// Nothing in these files may have external linkage but what loops.h declares, and they include no
// header with inline functions: the linker keeps one copy of such a function, and it might be the
// one compiled for AVX-512. A test looks for them.

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read pairs of bf16 in little-endian order"
#endif

#if FLT_EVAL_METHOD != 0
#error "the kernels need float arithmetic in float precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

// Constant arguments must reach the loops before they are vectorised.
#define VESCOMM_INLINE static inline __attribute__((always_inline))

// Elements are independent of each other, also when a source is the destination itself. Without
// this the compiler tests for overlap, and in place it would take the scalar loop.
#if defined(__clang__)
// Sanitizers leave nothing to vectorise, and clang would complain.
#pragma clang diagnostic ignored "-Wpass-failed"
#define VESCOMM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define VESCOMM_INDEPENDENT _Pragma("GCC ivdep")
#endif
