// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Copies whose writes bypass the caches: the processor does not read the destination first, and the
// contents of the caches stay. Zone: per byte.
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "execute/loops/loops.h"
#include "execute/loops/vectorise.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

constexpr std::size_t line = 64;

// Writes a whole cache line, so the processor does not read it first. Compilers do not generate
// these instructions from loops.
VESCOMM_INLINE void stream_line(char *to, const char *from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i *>(to), _mm512_loadu_si512(from));
#elif defined(__AVX__)
    for (std::size_t i = 0; i < line; i += sizeof(__m256i))
        _mm256_stream_si256(reinterpret_cast<__m256i *>(to + i),
                            _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + i)));
#elif defined(__SSE2__)
    for (std::size_t i = 0; i < line; i += sizeof(__m128i))
        _mm_stream_si128(reinterpret_cast<__m128i *>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i)));
#else
    __builtin_memcpy(to, from, line);
#endif
}

}  // namespace

void stream(void *to, const void *from, std::size_t bytes) noexcept {
    auto y = static_cast<char *>(to);
    auto x = static_cast<const char *>(from);
    std::size_t head = -reinterpret_cast<std::uintptr_t>(y) % line;
    if (head > bytes) head = bytes;
    __builtin_memcpy(y, x, head);
    for (bytes -= head, y += head, x += head; bytes >= line; bytes -= line, y += line, x += line)
        stream_line(y, x);
    __builtin_memcpy(y, x, bytes);
}

}  // namespace vescomm::internal::VESCOMM_ISA
