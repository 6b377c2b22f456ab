// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>

// Macros for the loops, which the compiler vectorises. The files of this folder are compiled once
// for each instruction set; VESCOMM_ISA names it.
//
// Three rules make the result of an element the same everywhere: no contraction of a * b + c
// (-ffp-contract=off), one fixed order of operations, and canonical NaNs, because the payload that
// an addition keeps depends on the order of operands that the compiler chooses.
//
// Only the functions that loops.h declares may have external linkage, and these files include no
// header with inline functions: the linker keeps one copy of such a function, and it might be the
// one compiled for AVX-512. tests/execute/kernel_symbols_test.py checks this.

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read pairs of bf16 in little-endian order"
#endif

#if FLT_EVAL_METHOD != 0
#error "the kernels need float arithmetic in float precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

// Constant arguments must reach the loops before they are vectorised. Kernels for GPUs use the same
// functions (gpu/kernels).
#if defined(__CUDACC__)
#define VESCOMM_INLINE static inline __attribute__((always_inline)) __host__ __device__
#else
#define VESCOMM_INLINE static inline __attribute__((always_inline))
#endif

// Declares that elements are independent of each other, even if a source is the destination itself.
// Otherwise the compiler tests for overlap, and uses the scalar loop in place.
#if defined(__clang__)
// Loops with sanitizers do not vectorise, and clang would warn.
#pragma clang diagnostic ignored "-Wpass-failed"
#define VESCOMM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define VESCOMM_INDEPENDENT _Pragma("GCC ivdep")
#endif
