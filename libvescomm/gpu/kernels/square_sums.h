// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/exact_digits.h"
#include "gpu/kernels/body.h"

// Exact sums of squares of floats: of a thread in registers, and of a block.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// x times 2^places, or 0 if places is 64 or more.
VESCOMM_INLINE std::uint64_t shifted_left(std::uint64_t x, std::uint32_t places) {
#if defined(__CUDA_ARCH__)
    std::uint64_t shifted;
    asm("shl.b64 %0, %1, %2;" : "=l"(shifted) : "l"(x), "r"(places));
    return shifted;
#else
    return places < 64 ? x << places : 0;
#endif
}
VESCOMM_INLINE std::uint64_t shifted_right(std::uint64_t x, std::uint32_t places) {
#if defined(__CUDA_ARCH__)
    std::uint64_t shifted;
    asm("shr.u64 %0, %1, %2;" : "=l"(shifted) : "l"(x), "r"(places));
    return shifted;
#else
    return places < 64 ? x >> places : 0;
#endif
}

// The significand of a normal float, with its implicit bit.
VESCOMM_INLINE std::uint32_t significand_of(std::uint32_t x) {
#if defined(__CUDA_ARCH__)
    std::uint32_t significand;  // one instruction, of which compilers make two
    asm("lop3.b32 %0, %1, 0x7fffff, %2, 0xea;" : "=r"(significand) : "r"(x), "r"(1u << 23));
    return significand;
#else
    return (x & 0x7fffff) | 1u << 23;
#endif
}

// A thread adds fewer squares than two to this power.
constexpr int max_squares_log = 8;
static_assert(gpu_kernel::summed_elements / gpu_kernel::threads + gpu_kernel::access_bytes <
              1 << max_squares_log);

// Sums of squares, which are integers times 2^place. `begin` says for which exponents places are
// from 0 to max_place; the bit of the words that place 0 stands for is position(begin). add()
// returns the place. Zeros have a negative one and add 0. The sum is undefined after any other
// square whose place is not from 0 to max_place.

// For floats with few significant bits: their squares are floats too.
template <int bits>
struct NarrowSum {
    std::uint64_t value = 0;

    static constexpr int max_place = 64 - max_squares_log - 2 * bits;
    // With the last bit of a square at place 0. Zeros are shifted out from this beginning on.
    static constexpr int min_begin = 2 * bits;
    static constexpr int infinite_field = 255;
    VESCOMM_INLINE constexpr int field(int exponent) { return 2 * exponent - 126; }  // at most
    VESCOMM_INLINE constexpr int position(int begin) {
        return begin + (24 - 2 * bits) - 150 - exact_min_exponent;
    }
    VESCOMM_INLINE int add(NarrowSum *sum, float x, int begin) {
        const std::uint32_t square = as_bits(x * x);
        const int place = static_cast<int>(square >> 23) - begin;
        const std::uint64_t significand = std::uint64_t{square << 8 | 1u << 31} << 32;
        sum->value += shifted_right(significand, static_cast<unsigned>(64 - 2 * bits - place));
        return place;
    }
    VESCOMM_INLINE std::uint64_t lower(const NarrowSum &sum) { return sum.value; }
    VESCOMM_INLINE std::uint64_t upper(const NarrowSum &) { return 0; }
};
struct WideSum {
    __extension__ typedef unsigned __int128 Integer;
    Integer value = 0;

    static constexpr int max_place = 128 - 31 - 48 - max_squares_log;  // 31: for position() % 32
    static constexpr int min_begin = 2;
    static constexpr int infinite_field = 2 * 255;
    VESCOMM_INLINE constexpr int field(int exponent) { return 2 * exponent; }
    VESCOMM_INLINE constexpr int position(int begin) {
        return begin - 2 * 150 - exact_min_exponent;
    }
    VESCOMM_INLINE int add(WideSum *sum, float x, int begin) {
        const std::uint32_t significand = significand_of(as_bits(x));
        const int place = static_cast<int>((as_bits(x) >> 22) & 0x1fe) - begin;
        const std::uint64_t square = std::uint64_t{significand} * significand;
        sum->value += Integer{shifted_right(square, static_cast<unsigned>(64 - place))} << 64 |
                      shifted_left(square, static_cast<unsigned>(place));
        return place;
    }
    VESCOMM_INLINE std::uint64_t lower(const WideSum &sum) {
        return static_cast<std::uint64_t>(sum.value);
    }
    VESCOMM_INLINE std::uint64_t upper(const WideSum &sum) {
        return static_cast<std::uint64_t>(sum.value >> 64);
    }
};

template <typename Element>
struct SumOf;
template <>
struct SumOf<F32> {
    using Type = WideSum;
};
template <>
struct SumOf<Bf16> {
    using Type = NarrowSum<8>;
};
template <>
struct SumOf<F16> {
    using Type = NarrowSum<11>;
};

// The sum of a block, of squares that threads add one by one. The halves of a digit are counted
// apart: GPUs have atomic additions of 32 bits in the memory of a block, and those of 64 bits are
// loops.
struct SharedSum {
    std::uint32_t halves[2][exact_digits];
    std::uint32_t special[2];  // infinities and NaNs

    // A thread adds to a digit at most once for each element, when its range moves, and at its
    // end: a half does not overflow.
    VESCOMM_INLINE void add(SharedSum &sum, int digit, std::uint32_t value) {
        if (value == 0) return;
        atomic_add(&sum.halves[0][digit], value & 0xffff);
        atomic_add(&sum.halves[1][digit], value >> 16);
    }
    // Adds the square of a float that is not 0.
    VESCOMM_INLINE void add_square(SharedSum &sum, std::uint32_t magnitude) {
        if (magnitude >= infinity)
            return atomic_add(&sum.special[magnitude > infinity ? 1 : 0], 1u);
        // Subnormals have exponent 1.
        const bool subnormal = magnitude < 1u << 23;
        const std::uint32_t exponent = subnormal ? 1 : magnitude >> 23;
        const std::uint32_t place = 2 * exponent + (-2 * 150 - exact_min_exponent);
        const std::uint32_t fraction = subnormal ? magnitude : significand_of(magnitude);
        const std::uint64_t square = std::uint64_t{fraction} * fraction;
        const std::uint64_t low = (square & 0xffffffff) << place % 32;
        const std::uint64_t middle = ((square >> 32) << place % 32) + (low >> 32);
        const int digit = static_cast<int>(place / 32);
        add(sum, digit, static_cast<std::uint32_t>(low));
        add(sum, digit + 1, static_cast<std::uint32_t>(middle));
        add(sum, digit + 2, static_cast<std::uint32_t>(middle >> 32));
    }
    VESCOMM_INLINE std::int64_t word(const SharedSum &sum, int k) {
        if (k >= exact_digits) return sum.special[k - exact_digits];
        return sum.halves[0][k] + (std::int64_t{sum.halves[1][k]} << 16);
    }
};
static_assert((gpu_kernel::summed_elements * std::int64_t{2}) * 0xffff <= 0xffffffff);

// A sum of squares of one thread. Those in a range of exponents are added in registers, exactly and
// without branches. The range follows the largest elements; the squares of smaller ones go to the
// sum of the block one by one.
template <typename Sum>
struct OpenSum {
    static constexpr int digits = 4;

    Sum sum;
    int begin = begin_for(0);

    // Adds squares to a sum that began as that of `open`. Returns true if all are in the range. If
    // not, the sum is undefined.
    template <int n>
    VESCOMM_INLINE bool add(const OpenSum &open, Sum *sum, const float (&x)[n]) {
        unsigned outside = 0;  // no bool, for which compilers make branches
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) {
            const int place = Sum::add(sum, x[k], open.begin);
            outside |= static_cast<unsigned>(static_cast<unsigned>(place) > Sum::max_place) &
                       static_cast<unsigned>(as_bits(x[k]) << 1 != 0);
        }
        return outside == 0;
    }

    // True if the square of a float is above the range.
    VESCOMM_INLINE bool is_above(const OpenSum &open, float x) {
        Sum sum;
        return Sum::add(&sum, x, open.begin) > Sum::max_place;
    }

    // The largest magnitude. That of NaN is the largest of all.
    template <int n>
    VESCOMM_INLINE float largest_of(const float (&x)[n]) {
        std::uint32_t largest = 0;
        VESCOMM_UNROLL
        for (int k = 0; k < n; ++k) {
            const std::uint32_t magnitude = as_bits(x[k]) & 0x7fffffff;
            largest = magnitude > largest ? magnitude : largest;
        }
        return as_float(largest);
    }

    // The empty sum whose range is such that an element is near its end.
    VESCOMM_INLINE OpenSum for_largest(float largest) {
        OpenSum open;
        open.begin = begin_for(static_cast<int>((as_bits(largest) >> 23) & 0xff));
        return open;
    }

    // Moves the digits to the sum of the block.
    VESCOMM_INLINE void flush(const OpenSum &open, SharedSum &shared) {
        VESCOMM_UNROLL
        for (int k = 0; k < digits; ++k) SharedSum::add(shared, first(open) + k, digit(open, k));
    }

    // Digit number k of the sum, from digit number first() of the words on.
    VESCOMM_INLINE std::uint32_t digit(const OpenSum &open, int k) {
        const unsigned shift = static_cast<unsigned>(Sum::position(open.begin)) % 32;
        const std::uint64_t lower = Sum::lower(open.sum), upper = Sum::upper(open.sum);
        const std::uint64_t half =
            k < 2 ? lower << shift : upper << shift | shifted_right(lower, 64 - shift);
        return static_cast<std::uint32_t>(half >> 32 * (k % 2));
    }
    VESCOMM_INLINE int first(const OpenSum &open) { return Sum::position(open.begin) / 32; }

private:
    // The begin of a range that ends above an exponent field. No range has places for zeros,
    // subnormals, infinities and NaNs.
    VESCOMM_INLINE int begin_for(int exponent) {
        constexpr int above = 10;  // for elements up to 32 times larger
        constexpr int min = Sum::min_begin, max = Sum::infinite_field - 1 - Sum::max_place;
        const int wished = Sum::field(exponent) - Sum::max_place + above;
        return wished < min ? min : wished > max ? max : wished;
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
