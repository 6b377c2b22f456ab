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

// VESCOMM_RARE: a function that is rarely called, and takes no registers of its callers.

#if defined(__CUDACC__)
#define VESCOMM_UNROLL _Pragma("unroll")
#define VESCOMM_NO_UNROLL _Pragma("unroll 1")
#define VESCOMM_RARE static __noinline__ __host__ __device__
#else
#define VESCOMM_UNROLL
#define VESCOMM_NO_UNROLL
#define VESCOMM_RARE static __attribute__((noinline))
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

VESCOMM_INLINE void atomic_add(std::uint32_t *to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicAdd(to, value);
#else
    *to += value;  // of one block, whose threads the host runs in turn
#endif
}

VESCOMM_INLINE void atomic_max(std::uint32_t *to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
    atomicMax(to, value);
#else
    *to = *to > value ? *to : value;  // as above
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

// The number of consecutive elements that a thread moves at a time: those of 16 bytes of the
// largest type. So the threads of a warp read and write memory without gaps in each instruction.
// Two instructions for each thread, of 16 bytes each, would write half of each sector of 32 bytes,
// and reach half of the bandwidth (measured on an H100).
template <typename First, typename Second = First>
constexpr int elements_of_run = gpu_kernel::access_bytes /
                                (sizeof(First) > sizeof(Second) ? sizeof(First) : sizeof(Second));

// Memory of a number of bytes, which one instruction moves.
#if defined(__CUDACC__)
template <int bytes>
struct Access;
template <>
struct Access<1> {
    using Type = unsigned char;
};
template <>
struct Access<2> {
    using Type = unsigned short;
};
template <>
struct Access<4> {
    using Type = unsigned;
};
template <>
struct Access<8> {
    using Type = uint2;
};
template <>
struct Access<16> {
    using Type = uint4;
};
#else
// Without an alignment: GCC 12 moves aligned loads to the place before the check of the address.
template <int size>
struct Access {
    struct __attribute__((may_alias)) Type {
        unsigned char at[size];
    };
};
#endif

// A run of consecutive elements. Whole runs at aligned addresses are one access.
template <typename Storage, int elements>
struct Run {
    static constexpr int bytes = elements * sizeof(Storage);
    using Access = typename Access<bytes>::Type;
    struct alignas(bytes) Vector {
        Storage at[elements];
    };

    VESCOMM_INLINE bool is_access(const void *address, int count) {
        return count == elements && reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
    }
    VESCOMM_INLINE void load(Vector *to, const Storage *from, int count) {
        if (is_access(from, count)) load_whole(to, from);
        else load_part(to, from, count);
    }
    // The same for a run that is aligned if it is whole.
    VESCOMM_INLINE void load_aligned(Vector *to, const Storage *from, int count) {
        if (count == elements) load_whole(to, from);
        else load_part(to, from, count);
    }
    VESCOMM_INLINE void store(Storage *to, const Vector &from, int count) {
        if (is_access(to, count)) {
            store_aligned(to, from);
            return;
        }
        VESCOMM_UNROLL
        for (int k = 0; k < elements; ++k)
            if (k < count) to[k] = from.at[k];
    }
    // The same for a whole run at an aligned address.
    VESCOMM_INLINE void store_aligned(Storage *to, const Vector &from) {
        Access access;
        __builtin_memcpy(&access, &from, bytes);
        *reinterpret_cast<Access *>(to) = access;
    }

private:
    VESCOMM_INLINE void load_whole(Vector *to, const Storage *from) {
        const Access access = *reinterpret_cast<const Access *>(from);
        __builtin_memcpy(to, &access, bytes);
    }
    VESCOMM_INLINE void load_part(Vector *to, const Storage *from, int count) {
        VESCOMM_UNROLL
        for (int k = 0; k < elements; ++k) to->at[k] = k < count ? from[k] : Storage{};
    }
};

// The runs of a thread in `count` elements at `to`. All but the first and the last one of a block
// are whole and aligned at `to`. There are up to 2^30 elements: indices of 64 bits would take most
// of the instructions of a simple body.
template <int elements>
struct Runs {
    static constexpr int step = gpu_kernel::threads * elements;

    int before, end;  // of the elements, from the aligned address before `to` on

    template <typename Storage>
    VESCOMM_INLINE Runs of(const Storage *to, std::int64_t count) {
        const auto before =
            static_cast<int>(reinterpret_cast<std::uintptr_t>(to) / sizeof(Storage) % elements);
        return {before, before + static_cast<int>(count)};
    }
    VESCOMM_INLINE bool whole(const Runs &runs, int run) {
        return run >= runs.before && run + elements <= runs.end;
    }
    // Calls body(first, elements of the run), unless it is empty.
    template <typename Body>
    VESCOMM_INLINE void call(const Runs &runs, int run, const Body &body) {
        const int first = run < runs.before ? runs.before : run;
        const int end = run + elements < runs.end ? run + elements : runs.end;
        if (first < end) body(first - runs.before, end - first);
    }
};

template <int elements, typename Storage, typename Body>
VESCOMM_INLINE void for_runs(const Storage *to, std::int64_t count, unsigned thread,
                             const Body &body) {
    using Own = Runs<elements>;
    const Own runs = Own::of(to, count);
    for (int run = static_cast<int>(thread) * elements; run < runs.end; run += Own::step)
        Own::call(runs, run, body);
}

// The same for any number of elements.
template <int elements, typename Storage, typename Body>
VESCOMM_INLINE void for_all_runs(const Storage *to, std::int64_t count, unsigned thread,
                                 const Body &body) {
    constexpr std::int64_t part = std::int64_t{1} << 30;
    for (std::int64_t begin = 0; begin < count; begin += part)
        for_runs<elements>(to + begin, count - begin < part ? count - begin : part, thread,
                           [&](int first, int number) { body(begin + first, number); });
}

// The same for small loads: loads two runs before it stores the first one, store(load(...), ...).
template <int elements, typename Storage, typename Load, typename Store>
VESCOMM_INLINE void for_two_runs(const Storage *to, std::int64_t count, unsigned thread,
                                 const Load &load, const Store &store) {
    using Own = Runs<elements>;
    const Own runs = Own::of(to, count);
    int run = static_cast<int>(thread) * elements;
    for (; Own::whole(runs, run) && Own::whole(runs, run + Own::step); run += 2 * Own::step) {
        const int first = run - runs.before;
        const auto one = load(first, elements), two = load(first + Own::step, elements);
        store(one, first, elements);
        store(two, first + Own::step, elements);
    }
    for (; run < runs.end; run += Own::step)
        Own::call(runs, run, [&](int first, int here) { store(load(first, here), first, here); });
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
