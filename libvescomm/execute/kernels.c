/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0 */

/* The loops behind kernels.h, compiled once for each instruction set (VESCOMM_ISA names it) and
 * left to the compiler to vectorise. Zone: per byte.
 *
 * The promise that an element's result is the same everywhere rests on three things: no contraction
 * of a * b + c (-ffp-contract=off), one fixed order of additions, and canonical NaNs, because which
 * operand's payload an addition keeps depends on the order that the compiler gives the operands. */
#include <assert.h>
#include <float.h>
#include <stdint.h>
#include <string.h>

#include "execute/kernels_isa.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels read pairs of bf16 in little-endian order"
#endif

#if FLT_EVAL_METHOD != 0
#error "the kernels need float arithmetic in float precision (on 32-bit x86: -msse2 -mfpmath=sse)"
#endif

#define PASTE_(a, b) a##_##b
#define PASTE(a, b) PASTE_(a, b)
#define KERNEL(name) PASTE(vescomm_##name, VESCOMM_ISA)

/* Constant arguments must reach the loops below before they are vectorised. */
#define INLINE static inline __attribute__((always_inline))

/* Elements are independent of each other, also when a source is the destination itself. Without
 * this the compiler tests for overlap, and in place it would take the scalar loop. */
#if defined(__clang__)
/* Sanitizers leave nothing to vectorise, and clang would complain. */
#pragma clang diagnostic ignored "-Wpass-failed"
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* --------------------------------------------------------------------------- element types ---- */

INLINE float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

INLINE uint32_t as_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

INLINE float canonical(float x) {
    return x == x ? x : as_float(0x7fc00000);
}

INLINE float from_bf16(uint16_t x) {
    return as_float((uint32_t)x << 16);
}

/* Rounding to nearest even adds just under half of the last kept bit, and that bit itself. */
INLINE uint16_t to_bf16(float x) {
    const uint32_t bits = as_bits(x);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

/* f16 by integer arithmetic: F16C exists from x86-64-v3 only, and this vectorises everywhere.
 * Source: F. Giesen, "Half to float done quick" and "Float to half done quick", 2012. */
INLINE float from_f16(uint16_t x) {
    const uint32_t shifted = (uint32_t)(x & 0x7fff) << 13;
    const uint32_t exponent = shifted & 0x0f800000;
    const uint32_t normal = shifted + ((127 - 15) << 23);
    const uint32_t special = shifted + ((255 - 31) << 23);
    /* A subnormal is read as 2^-14 * (1 + fraction), and the excess subtracted. */
    const uint32_t subnormal = as_bits(as_float(normal + (1 << 23)) - 0x1p-14f);
    const uint32_t magnitude = exponent == 0x0f800000 ? special : exponent ? normal : subnormal;
    return as_float(magnitude | (uint32_t)(x & 0x8000) << 16);
}

INLINE uint16_t to_f16(float x) {
    const uint32_t bits = as_bits(x);
    const uint32_t magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    /* The last place of a float at 0.5 is that of a subnormal f16: the addition rounds. */
    const uint32_t subnormal = as_bits(as_float(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t result = magnitude >= 0x47800000  ? 0x7c00 /* 2^16 and more */
                            : magnitude < 0x38800000 ? subnormal /* below 2^-14 */
                                                     : normal;
    return (uint16_t)(magnitude > 0x7f800000 ? 0x7e00 : result | (bits >> 16 & 0x8000));
}

/* --------------------------------------------------------------------------------- convert ---- */

#define CONVERT(to_type, expression, from_type)               \
    do {                                                      \
        to_type *restrict y = to;                             \
        const from_type *restrict x = from;                   \
        for (size_t i = 0; i < count; ++i) y[i] = expression; \
    } while (0)

void KERNEL(convert)(void *to, vescomm_type_t to_type, const void *from, vescomm_type_t from_type,
                     size_t count) {
    if (to_type == from_type) {
        if (to != from && count > 0) memcpy(to, from, count * vescomm_type_bytes(to_type));
    } else if (to_type == VESCOMM_BF16 && from_type == VESCOMM_F32) {
        CONVERT(uint16_t, to_bf16(x[i]), float);
    } else if (to_type == VESCOMM_F32 && from_type == VESCOMM_BF16) {
        CONVERT(float, from_bf16(x[i]), uint16_t);
    } else if (to_type == VESCOMM_F16 && from_type == VESCOMM_F32) {
        CONVERT(uint16_t, to_f16(x[i]), float);
    } else if (to_type == VESCOMM_F32 && from_type == VESCOMM_F16) {
        CONVERT(float, from_f16(x[i]), uint16_t);
    } else if (to_type == VESCOMM_F64 && from_type == VESCOMM_F32) {
        CONVERT(double, x[i], float);
    } else if (to_type == VESCOMM_F32 && from_type == VESCOMM_F64) {
        CONVERT(float, (float)x[i], double);
    } else {
        assert(!"can_convert");
    }
}

/* ---------------------------------------------------------------------------------- reduce ---- */

enum {
    most_at_once = 8, /* sources that one loop adds; the compiler makes a loop for each number */
    tile_elements = 2048 /* of the partial sum when there are more: 8 KiB, a sixth of an L1 */
};

/* What one step of a loop takes from a source. Two bf16 are read as one word, because a shift and a
 * mask widen them, where widening each on its own takes shuffles. */
enum part { f32_element, bf16_low, bf16_high, bf16_last };

INLINE float part_of(const char *source, enum part part, size_t i) {
    if (part == f32_element) return ((const float *)source)[i];
    if (part == bf16_last) return from_bf16(((const uint16_t *)source)[2 * i]);
    uint32_t pair;
    memcpy(&pair, source + sizeof(pair) * i, sizeof(pair));
    return as_float(part == bf16_low ? pair << 16 : pair & 0xffff0000);
}

/* ((start + s0) + s1) + ..., without `start` when it is NULL. */
INLINE float sum_of_parts(int n, const float *start, const char *const *s, enum part part,
                          size_t i) {
    float x = part_of(s[0], part, i);
    if (start) x = *start + x;
    if (n > 1) x += part_of(s[1], part, i);
    if (n > 2) x += part_of(s[2], part, i);
    if (n > 3) x += part_of(s[3], part, i);
    if (n > 4) x += part_of(s[4], part, i);
    if (n > 5) x += part_of(s[5], part, i);
    if (n > 6) x += part_of(s[6], part, i);
    if (n > 7) x += part_of(s[7], part, i);
    return x;
}

INLINE void finish(void *to, vescomm_type_t type, size_t i, float x) {
    if (type == VESCOMM_F32) {
        ((float *)to)[i] = canonical(x);
    } else {
        ((uint16_t *)to)[i] = to_bf16(x);
    }
}

/* to = scale * (the sum of 1 to 8 sources). All arguments up to the first pointer are constants. */
INLINE void sum_exactly(int n, bool started, vescomm_type_t type, vescomm_type_t to_type,
                        const float *start, const char *const *sources, void *to, size_t count,
                        float scale) {
    const char *s[most_at_once];
    for (int k = 0; k < most_at_once; ++k) s[k] = k < n ? sources[k] : NULL;
#define START(i) (started ? start + (i) : NULL)

    if (type == VESCOMM_F32) {
        INDEPENDENT
        for (size_t i = 0; i < count; ++i) {
            finish(to, to_type, i, scale * sum_of_parts(n, START(i), s, f32_element, i));
        }
        return;
    }
    const size_t pairs = count / 2;
    INDEPENDENT
    for (size_t i = 0; i < pairs; ++i) {
        const float low = scale * sum_of_parts(n, START(2 * i), s, bf16_low, i);
        const float high = scale * sum_of_parts(n, START(2 * i + 1), s, bf16_high, i);
        if (to_type == VESCOMM_F32) {
            finish(to, to_type, 2 * i, low);
            finish(to, to_type, 2 * i + 1, high);
        } else {
            const uint32_t pair = to_bf16(low) | (uint32_t)to_bf16(high) << 16;
            memcpy((char *)to + sizeof(pair) * i, &pair, sizeof(pair));
        }
    }
    if (count % 2) {
        const float last = scale * sum_of_parts(n, START(2 * pairs), s, bf16_last, pairs);
        finish(to, to_type, 2 * pairs, last);
    }
#undef START
}

/* Makes a loop for each number of sources. */
INLINE void sum_typed(bool started, vescomm_type_t type, vescomm_type_t to_type, int n,
                      const float *start, const char *const *sources, void *to, size_t count,
                      float scale) {
#define SUM(n) sum_exactly(n, started, type, to_type, start, sources, to, count, scale)
    switch (n) {
        case 1:
            SUM(1);
            break;
        case 2:
            SUM(2);
            break;
        case 3:
            SUM(3);
            break;
        case 4:
            SUM(4);
            break;
        case 5:
            SUM(5);
            break;
        case 6:
            SUM(6);
            break;
        case 7:
            SUM(7);
            break;
        case 8:
            SUM(8);
            break;
    }
#undef SUM
}

/* Sums elements [first, first + count) of 1 to 8 sources into `to`. `start` and `to` are those of
 * element `first` already. */
static void sum(int n, vescomm_type_t type, vescomm_type_t to_type, const float *start,
                const void *const *sources, size_t first, void *to, size_t count, float scale) {
    const size_t skip = first * vescomm_type_bytes(type);
    const char *s[most_at_once];
    for (int k = 0; k < n; ++k) s[k] = (const char *)sources[k] + skip;

#define SUM(started, type, to_type) sum_typed(started, type, to_type, n, start, s, to, count, scale)
    if (type == VESCOMM_F32 && to_type == VESCOMM_F32) {
        start ? SUM(true, VESCOMM_F32, VESCOMM_F32) : SUM(false, VESCOMM_F32, VESCOMM_F32);
    } else if (type == VESCOMM_F32) {
        start ? SUM(true, VESCOMM_F32, VESCOMM_BF16) : SUM(false, VESCOMM_F32, VESCOMM_BF16);
    } else if (to_type == VESCOMM_F32) {
        start ? SUM(true, VESCOMM_BF16, VESCOMM_F32) : SUM(false, VESCOMM_BF16, VESCOMM_F32);
    } else {
        start ? SUM(true, VESCOMM_BF16, VESCOMM_BF16) : SUM(false, VESCOMM_BF16, VESCOMM_BF16);
    }
#undef SUM
}

INLINE size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

void KERNEL(reduce)(const void *const *sources, int n, vescomm_type_t source_type, void *to,
                    vescomm_type_t to_type, size_t count, bool accumulate, float scale) {
    assert(n >= 1);
    const bool narrow_start = accumulate && to_type != VESCOMM_F32;
    if (n <= most_at_once && !narrow_start) {
        sum(n, source_type, to_type, accumulate ? to : NULL, sources, 0, to, count, scale);
        return;
    }

    /* The partial sum stays in L1 until the last sources are added, so `to` is written once. */
    float partial[tile_elements];
    for (size_t first = 0; first < count; first += tile_elements) {
        const size_t elements = smaller(tile_elements, count - first);
        void *out = (char *)to + first * vescomm_type_bytes(to_type);
        const float *start = NULL;
        if (narrow_start) {
            KERNEL(convert)(partial, VESCOMM_F32, out, to_type, elements);
            start = partial;
        } else if (accumulate) {
            start = out;
        }
        int done = 0;
        for (; n - done > most_at_once; done += most_at_once) {
            sum(most_at_once, source_type, VESCOMM_F32, start, sources + done, first, partial,
                elements, 1.0f);
            start = partial;
        }
        sum(n - done, source_type, to_type, start, sources + done, first, out, elements, scale);
    }
}

/* -------------------------------------------------------------------------- sum of squares ---- */

INLINE float element(const char *source, vescomm_type_t type, size_t i) {
    return type == VESCOMM_F32 ? ((const float *)source)[i]
                               : from_bf16(((const uint16_t *)source)[i]);
}

/* Enough running sums to hide the latency of adding to L1, where they live: compilers vectorise a
 * loop over them, but do not agree on what to do with a few sums in registers. */
enum { lanes = 64 };

/* The square of a float is exact in a double, so here contraction would change nothing. */
INLINE void add_squares(double *sums, const char *from, vescomm_type_t type, size_t count) {
    INDEPENDENT
    for (size_t k = 0; k < count; ++k) {
        const double x = element(from, type, k);
        sums[k] += x * x;
    }
}

INLINE double sum_of_squares(const char *from, vescomm_type_t type, size_t count) {
    const size_t size = type == VESCOMM_F32 ? sizeof(float) : sizeof(uint16_t);
    double sums[lanes] = {0};
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) add_squares(sums, from + i * size, type, lanes);
    add_squares(sums, from + i * size, type, count - i);
    for (size_t half = lanes / 2; half > 0; half /= 2) {
        for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    }
    return sums[0] == sums[0] ? sums[0] : (double)as_float(0x7fc00000);
}

double KERNEL(sum_of_squares)(const void *from, vescomm_type_t type, size_t count) {
    return type == VESCOMM_F32 ? sum_of_squares(from, VESCOMM_F32, count)
                               : sum_of_squares(from, VESCOMM_BF16, count);
}
