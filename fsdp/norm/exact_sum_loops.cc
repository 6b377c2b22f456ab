// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of exact_sum.h. Zone: per byte.
//
// The square p of an f32 is exact in a double. A block of squares below 2^e is added to two or more
// running sums for each lane, its levels. They start at a large constant, so that they keep their
// exponent, and with it their last place:
//
//     bit      e+6 ......... e                            e-45
//              ├─ 2^6 terms ─┤                              │
//     level 0  ├────────────────────────────────────────────┤ last place 2^(e-45)
//     level 1                                        ├──────────────────────────┤ 2^(e-91)
//     level 2                                                             ├─── ... 2^(e-137)
//
// The additions to a level round, but their errors are doubles again (Fast2Sum), and go to the next
// level. If the last level rounds nothing away, all sums are exact. Two levels suffice for any
// block whose elements lie within 21 binary orders of magnitude, and for many others, because small
// elements often have zeros in their last places. A block that fails gets more levels, and so do
// the blocks after it until they no longer use them.
//
// The constants have fixed exponents, so the integer difference of the bits of a level from those
// of its constant is its sum in units of its last place.
//
// Source: J. Demmel, H. D. Nguyen, "Parallel reproducible summation", IEEE Transactions on
// Computers 64(7), 2015. They keep few levels and lose the smallest bits.
#include "fsdp/norm/exact_sum_loops.h"

#include "execute/loops/elements.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

#if defined(__AVX512F__)
constexpr int width = 8;
#elif defined(__AVX__)
constexpr int width = 4;
#else
constexpr int width = 2;
#endif
typedef double Doubles __attribute__((vector_size(width * 8)));
typedef std::int64_t Integers __attribute__((vector_size(width * 8)));
typedef float Floats __attribute__((vector_size(width * 4)));

constexpr int sets = 2;  // independent vectors of running sums, to hide the latency of additions
constexpr int rows_log2 = 6;
constexpr int rows = 1 << rows_log2;
constexpr int row = sets * width;
constexpr int block = rows * row;

constexpr int double_bits = 52;
constexpr int min_unit = -320;  // ExactSum::min_exponent, whose header has inline functions
constexpr std::int64_t digit_mask = 0xffffffff;

// Exponent of the constant of a level, for terms below 2^0. The errors of a level are at most half
// of its last place, and 2^rows_log2 of them must not leave the binary order of the next constant.
constexpr int exponent_of(int level) {
    return rows_log2 + 1 - level * (double_bits - rows_log2);
}

// Exponents of terms from which on the last place of the last level is below the unit of an
// ExactSum, so that nothing can be rounded away.
constexpr int min_exponent(int levels) {
    return min_unit + double_bits - exponent_of(levels - 1);
}

VESCOMM_INLINE double as_double(std::int64_t bits) {
    return __builtin_bit_cast(double, bits);
}

// 1.5 * 2^exponent: sums of either sign keep this exponent.
VESCOMM_INLINE std::int64_t start_bits(int exponent) {
    return (static_cast<std::int64_t>(1023 + exponent) << double_bits) |
           (std::int64_t{1} << (double_bits - 1));
}

// Adds sum * 2^exponent to the digits.
VESCOMM_INLINE void add_to_digits(std::int64_t *words, std::int64_t sum, int exponent) {
    const int place = exponent - min_unit;
    const int digit = place / 32;
    // |sum| is below 2^58, so no part overflows.
    const std::int64_t lower = (sum & digit_mask) << place % 32;
    const std::int64_t upper = (sum >> 32) * (std::int64_t{1} << place % 32);
    words[digit] += lower & digit_mask;
    words[digit + 1] += (lower >> 32) + (upper & digit_mask);
    words[digit + 2] += upper >> 32;
}

// The terms of a block: squares of floats, or errors of an earlier pass.
struct Squares {
    const float *from;
    VESCOMM_INLINE Doubles load(const Squares &terms, int i) {
        Floats x;
        __builtin_memcpy(&x, terms.from + i, sizeof x);
        const Doubles wide = __builtin_convertvector(x, Doubles);
        return wide * wide;
    }
    VESCOMM_INLINE void keep(const Squares &, int, Doubles) {}
};
struct Errors {
    double *from;
    VESCOMM_INLINE Doubles load(const Errors &terms, int i) {
        Doubles x;
        __builtin_memcpy(&x, terms.from + i, sizeof x);
        return x;
    }
    VESCOMM_INLINE void keep(const Errors &terms, int i, Doubles x) {
        __builtin_memcpy(terms.from + i, &x, sizeof x);
    }
};

template <int levels>
struct BlockSum {
    std::int64_t sums[levels];  // in units of the last places of the levels
    int exponent;  // all terms are below 2^exponent
    bool exact;
};

// Sums a block whose terms are below 2^exponent. Meanwhile it prefetches `ahead`, `step` bytes in
// each row: otherwise memory would be idle during the additions.
template <int levels, typename Terms>
VESCOMM_INLINE BlockSum<levels> sum_block(const Terms &terms, int exponent, const char *ahead,
                                          std::size_t step) {
    if (exponent < min_exponent(levels)) exponent = min_exponent(levels);
    Doubles sums[levels][sets];
    Integers left[sets] = {};
    for (int level = 0; level < levels; ++level) {
        const double start = as_double(start_bits(exponent + exponent_of(level)));
        for (int set = 0; set < sets; ++set) sums[level][set] = start - Doubles{};
    }
    for (int r = 0; r < rows; ++r) {
        for (std::size_t line = 0; line < step; line += 64) __builtin_prefetch(ahead + line);
        ahead += step;
        for (int set = 0; set < sets; ++set) {
            const int i = r * row + set * width;
            Doubles term = Terms::load(terms, i);
            for (int level = 0; level < levels; ++level) {
                const Doubles old = sums[level][set];
                sums[level][set] = old + term;
                term -= sums[level][set] - old;
            }
            left[set] |= (Integers)term;
            Terms::keep(terms, i, term);
        }
    }
    BlockSum<levels> result = {{}, exponent, true};
    for (int level = 0; level < levels; ++level) {
        Integers sum = {};
        for (int set = 0; set < sets; ++set)
            sum += (Integers)sums[level][set] - start_bits(exponent + exponent_of(level));
        for (int k = 0; k < width; ++k) result.sums[level] += sum[k];
    }
    // An error of zero may be -0.
    Integers any = {};
    for (int set = 0; set < sets; ++set) any |= left[set] << 1;
    for (int k = 0; k < width; ++k) result.exact = result.exact && any[k] == 0;
    return result;
}

template <int levels>
VESCOMM_INLINE void add_block(std::int64_t *words, const BlockSum<levels> &block_sum) {
    for (int level = 0; level < levels; ++level) {
        const int place = block_sum.exponent + exponent_of(level) - double_bits;
        add_to_digits(words, block_sum.sums[level], place);
    }
}

// Adds a block of squares if `levels` suffice. `unused`: the last level was not needed.
template <int levels>
VESCOMM_INLINE bool try_block(std::int64_t *words, const float *from, int exponent,
                              const char *ahead, std::size_t step, bool *unused) {
    const auto sum = sum_block<levels>(Squares{from}, exponent, ahead, step);
    if (sum.exact) add_block(words, sum);
    *unused = sum.sums[levels - 1] == 0;
    return sum.exact;
}

// A block of any magnitudes. Elements that are not finite are counted, and count as zero otherwise.
__attribute__((noinline)) void add_any_block(std::int64_t *words, const float *from,
                                             std::int64_t *infinities, std::int64_t *nans) {
    double terms[block];
    for (int i = 0; i < block; ++i) {
        const std::uint32_t magnitude = as_bits(from[i]) & 0x7fffffff;
        *infinities += magnitude == infinity ? 1 : 0;
        *nans += magnitude > infinity ? 1 : 0;
        const double x = magnitude < infinity ? from[i] : 0.0f;
        terms[i] = x * x;
    }
    for (;;) {
        std::uint64_t max = 0;
        for (int i = 0; i < block; ++i) {
            const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, terms[i]) << 1;
            max = max > bits ? max : bits;
        }
        if (max == 0) return;
        const int exponent = static_cast<int>(max >> (double_bits + 1)) - 1023 + 1;
        const auto *const here = reinterpret_cast<const char *>(terms);
        add_block(words, sum_block<2>(Errors{terms}, exponent, here, 0));
    }
}

// State of one call.
struct Progress {
    std::int64_t infinities = 0;
    std::int64_t nans = 0;
    int levels = 2;  // of the next block: 2, 3 or 7
};

// Adds a block; `max` is the largest magnitude in it, as the bits of a float.
VESCOMM_INLINE void add_floats(std::int64_t *words, const float *from, std::uint32_t max,
                               const char *ahead, std::size_t step, Progress *progress) {
    if (max == 0) return;
    if (max < infinity) {
        // Squares of floats below 2^k are below 2^(2k). Subnormals are below 2^-126.
        const int exponent = 2 * (static_cast<int>(max >> 23) - 127 + 1);
        bool unused = false;
        if (progress->levels == 2) {
            if (try_block<2>(words, from, exponent, ahead, step, &unused)) return;
            progress->levels = 3;
        }
        if (progress->levels == 3) {
            const bool done = try_block<3>(words, from, exponent, ahead, step, &unused);
            progress->levels = !done ? 7 : unused ? 2 : 3;
            if (done) return;
        }
        const bool done = try_block<7>(words, from, exponent, ahead, step, &unused);
        if (unused) progress->levels = 3;
        if (done) return;
    }
    add_any_block(words, from, &progress->infinities, &progress->nans);
}

// Widens elements to floats, and returns the largest magnitude of them as the bits of a float.
template <typename Element>
VESCOMM_INLINE std::uint32_t widen_block(float *__restrict__ to,
                                         const typename Element::Storage *__restrict__ from,
                                         std::size_t count) {
    std::uint32_t max = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float x = Element::widen(from[i]);
        const std::uint32_t magnitude = as_bits(x) & 0x7fffffff;
        max = max > magnitude ? max : magnitude;
        to[i] = x;
    }
    return max;
}

VESCOMM_INLINE std::uint32_t max_magnitude(const float *from) {
    std::uint32_t max = 0;
    for (int i = 0; i < block; ++i) {
        const std::uint32_t magnitude = as_bits(from[i]) & 0x7fffffff;
        max = max > magnitude ? max : magnitude;
    }
    return max;
}

template <typename Element>
VESCOMM_INLINE void add_elements(std::int64_t *words, const void *data, std::size_t count,
                                 Progress *progress) {
    constexpr bool wide = sizeof(typename Element::Storage) == sizeof(float);
    constexpr std::size_t step = row * sizeof(typename Element::Storage);
    const auto *from = static_cast<const typename Element::Storage *>(data);
    alignas(64) float floats[block];
    while (count >= block) {
        const auto *const ahead = reinterpret_cast<const char *>(from + block);
        if constexpr (wide) {
            add_floats(words, from, max_magnitude(from), ahead, step, progress);
        } else {
            const std::uint32_t max = widen_block<Element>(floats, from, block);
            add_floats(words, floats, max, ahead, step, progress);
        }
        from += block;
        count -= block;
    }
    if (count == 0) return;
    for (float &x : floats) x = 0;
    const std::uint32_t max = widen_block<Element>(floats, from, count);
    const auto *const here = reinterpret_cast<const char *>(floats);
    add_floats(words, floats, max, here, 0, progress);
}

}  // namespace

void add_exact_squares(std::int64_t *words, const void *from, vescomm_type_t type,
                       std::size_t count) noexcept {
    constexpr int digits = 20;  // ExactSum::digits, whose header has inline functions
    Progress progress;
    if (type == VESCOMM_F32) {
        add_elements<F32>(words, from, count, &progress);
    } else if (type == VESCOMM_BF16) {
        add_elements<Bf16>(words, from, count, &progress);
    } else {
        add_elements<F16>(words, from, count, &progress);
    }
    words[digits] += progress.infinities;
    words[digits + 1] += progress.nans;
}

}  // namespace vescomm::fsdp::VESCOMM_ISA
