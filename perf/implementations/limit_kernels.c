/* SPDX-FileCopyrightText: The vescomm authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Zone: per byte. Plain loops that compilers vectorise; only streaming stores need intrinsics. */
#include "perf/implementations/limit_kernels.h"

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

/* Streams whole cache lines and copies the partial lines at both ends. */
static void stream(void *to, const void *from, size_t bytes) {
#if defined(__AVX512F__) || defined(__AVX2__)
    enum { line = 64 };
    char *target = to;
    const char *source = from;
    size_t head = (size_t)(-(uintptr_t)target) % line;
    if (head > bytes) head = bytes;
    memcpy(target, source, head);
    target += head;
    source += head;
    bytes -= head;
    for (; bytes >= line; bytes -= line, target += line, source += line) {
#if defined(__AVX512F__)
        _mm512_stream_si512((__m512i *)target, _mm512_loadu_si512(source));
#else
        const __m256i low = _mm256_loadu_si256((const __m256i *)source);
        const __m256i high = _mm256_loadu_si256((const __m256i *)(source + 32));
        _mm256_stream_si256((__m256i *)target, low);
        _mm256_stream_si256((__m256i *)(target + 32), high);
#endif
    }
    /* Streamed bytes must be visible before the flag that announces them. */
    _mm_sfence();
    memcpy(target, source, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

static inline float widen(unsigned short half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float keep(float value) {
    return value;
}

/* A loop for each number of sources up to 4 keeps the sum in a register. More sources are added in
 * groups. */
#define GROUP(n, load)                        \
    for (size_t i = 0; i < count; ++i) {      \
        float sum = load(s[0][i]);            \
        if ((n) > 1) sum += load(s[1][i]);    \
        if ((n) > 2) sum += load(s[2][i]);    \
        if ((n) > 3) sum += load(s[3][i]);    \
        sums[i] = more ? sums[i] + sum : sum; \
    }

#define DEFINE_SUM(name, type, load)                                                        \
    static void name(float *restrict sums, const void *const *sources, int n, size_t first, \
                     size_t count, float scale) {                                           \
        for (int done = 0; done < n; done += 4) {                                           \
            const int left = n - done < 4 ? n - done : 4;                                   \
            const int more = done > 0;                                                      \
            const type *restrict s[4] = {0};                                                \
            for (int k = 0; k < left; ++k) s[k] = (const type *)sources[done + k] + first;  \
            if (left == 1) {                                                                \
                GROUP(1, load)                                                              \
            } else if (left == 2) {                                                         \
                GROUP(2, load)                                                              \
            } else if (left == 3) {                                                         \
                GROUP(3, load)                                                              \
            } else {                                                                        \
                GROUP(4, load)                                                              \
            }                                                                               \
        }                                                                                   \
        if (scale != 1)                                                                     \
            for (size_t i = 0; i < count; ++i) sums[i] *= scale;                            \
    }

DEFINE_SUM(sum_f32, float, keep)
DEFINE_SUM(sum_bf16, unsigned short, widen)

static void to_bf16(unsigned short *restrict to, const float *restrict from, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        uint32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

#define CONCATENATE(a, b) a##b
#define NAMED(isa) CONCATENATE(limit_kernels_, isa)
const limit_kernels_t NAMED(VESCOMM_ISA) = {stream, sum_f32, sum_bf16, to_bf16};
