// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/elements.h"
#include "gpu/kernels/parameters.h"

// Kernels as plain functions of a block and a thread, for nvcc and for the compiler of the host.
// A body is a class with
//
//     Parameters     the parameters of a launch
//     Shared         memory of a block
//     phases         number of phases; all threads of a block end one before any begins the next
//     run()          one phase of one thread
//
// kernels.cu runs the threads of a body on a GPU, tests/gpu/double/kernels.cc one after another on
// the host. Both are compiled without contraction of a * b + c, so the results have equal bits.
//
// VESCOMM_ISA names the namespace of these functions, as in execute/loops.

#if defined(__CUDACC__)
#define VESCOMM_UNROLL _Pragma("unroll")
#else
#define VESCOMM_UNROLL
#endif

namespace vescomm::internal::VESCOMM_ISA {
namespace {

struct Nothing {};

// Atomic updates of memory that threads share. The results do not depend on their order.

VESCOMM_INLINE void atomic_add(std::int64_t *to, std::int64_t value) {
#if defined(__CUDA_ARCH__)
    atomicAdd(reinterpret_cast<unsigned long long *>(to), static_cast<unsigned long long>(value));
#else
    __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

VESCOMM_INLINE void atomic_max(std::uint32_t *to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicMax(to, value);
#else
    *to = *to > value ? *to : value;  // of one block, whose threads the host runs in turn
#endif
}

// Sets a flag that several blocks may set.
VESCOMM_INLINE void set_flag(std::int32_t *flag) {
#if defined(__CUDA_ARCH__)
    *reinterpret_cast<volatile std::int32_t *>(flag) = 1;
#else
    __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
#endif
}

// A run of consecutive elements. Whole runs at aligned addresses move 16 bytes at a time.
template <typename Storage>
struct Run {
    static constexpr int bytes = gpu_kernel::run_elements * sizeof(Storage);
    static constexpr int alignment = bytes < 16 ? bytes : 16;
    struct __attribute__((aligned(alignment), may_alias)) Vector {
        Storage at[gpu_kernel::run_elements];
    };

    VESCOMM_INLINE bool is_vector(const void *address, int count) {
        return count == gpu_kernel::run_elements &&
               reinterpret_cast<std::uintptr_t>(address) % alignment == 0;
    }
    VESCOMM_INLINE void load(Vector *to, const Storage *from, int count) {
        if (is_vector(from, count)) {
            *to = *reinterpret_cast<const Vector *>(from);
            return;
        }
        VESCOMM_UNROLL
        for (int k = 0; k < gpu_kernel::run_elements; ++k)
            to->at[k] = k < count ? from[k] : Storage{};
    }
    VESCOMM_INLINE void store(Storage *to, const Vector &from, int count) {
        if (is_vector(to, count)) {
            *reinterpret_cast<Vector *>(to) = from;
            return;
        }
        VESCOMM_UNROLL
        for (int k = 0; k < gpu_kernel::run_elements; ++k)
            if (k < count) to[k] = from.at[k];
    }
};

// The runs of a thread in `count` elements: calls body(first, elements of the run).
template <typename Body>
VESCOMM_INLINE void for_runs(std::int64_t count, unsigned thread, const Body &body) {
    constexpr std::int64_t step = gpu_kernel::threads * gpu_kernel::run_elements;
    for (std::int64_t i = std::int64_t{thread} * gpu_kernel::run_elements; i < count; i += step)
        body(i, static_cast<int>(count - i < gpu_kernel::run_elements ? count - i
                                                                      : gpu_kernel::run_elements));
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
