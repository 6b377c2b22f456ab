// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of block_quantise.h. Zone: per byte.
#include "fsdp/quantise/quantise_loops.h"

#include "execute/loops/elements.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

struct Int8Code {
    using Storage = std::int8_t;
    static constexpr float max = 127;
    // Rounds to nearest even: the last place of a float at 1.5 * 2^23 is 1.
    VESCOMM_INLINE Storage encode(float x) {
        const std::uint32_t bits = as_bits(x + 0x1.8p23f) - as_bits(0x1.8p23f);
        return static_cast<Storage>(bits);
    }
    VESCOMM_INLINE float decode(Storage code) { return static_cast<float>(code); }
};

struct F8e4m3Code {
    using Storage = std::uint8_t;
    static constexpr float max = 448;
    VESCOMM_INLINE Storage encode(float x) { return F8e4m3::narrow(x); }
    VESCOMM_INLINE float decode(Storage code) { return F8e4m3::widen(code); }
};

// The largest magnitude, as the bits of a float.
template <typename Element>
VESCOMM_INLINE std::uint32_t max_magnitude(const typename Element::Storage *from,
                                           std::size_t count) {
    std::uint32_t max = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t magnitude = as_bits(Element::widen(from[i])) & 0x7fffffff;
        max = max > magnitude ? max : magnitude;
    }
    return max;
}

// Largest magnitude / Code::max; the largest code times the scale is finite.
template <typename Code>
VESCOMM_INLINE float scale_of(float magnitude) {
    const float scale = magnitude / Code::max;
    const bool overflows = as_bits(scale * Code::max) >= infinity;
    return overflows ? as_float(as_bits(scale) - 1) : scale;
}

template <typename Code, typename Element>
VESCOMM_INLINE void quantise_block(const typename Element::Storage *__restrict__ from,
                                   std::size_t count, typename Code::Storage *__restrict__ codes,
                                   float *scale) {
    const std::uint32_t max = max_magnitude<Element>(from, count);
    if (max == 0 || max >= infinity) {
        *scale = max == 0 ? 0 : as_float(quiet_nan);
        for (std::size_t i = 0; i < count; ++i) codes[i] = 0;
        return;
    }
    const float magnitude = as_float(max);
    *scale = scale_of<Code>(magnitude);
    // The reciprocal of a small magnitude would overflow.
    const float shift = magnitude < 0x1p-64f ? 0x1p64f : 1.0f;
    const float reciprocal = Code::max / (magnitude * shift);
    for (std::size_t i = 0; i < count; ++i)
        codes[i] = Code::encode(Element::widen(from[i]) * shift * reciprocal);
}

template <typename Code, typename Element>
VESCOMM_INLINE void dequantise_block(const typename Code::Storage *__restrict__ codes, float scale,
                                     std::size_t count,
                                     typename Element::Storage *__restrict__ to) {
    for (std::size_t i = 0; i < count; ++i) to[i] = Element::narrow(Code::decode(codes[i]) * scale);
}

// Calls body(begin, count, block) for each block. A block of 32, 64, 128 or 256 elements has a
// constant count there, so that its loops have no remainder.
template <typename Body>
VESCOMM_INLINE void for_blocks(std::size_t count, std::size_t block, const Body &body) {
    std::size_t begin = 0, index = 0;
    const auto full = [&](std::size_t elements) __attribute__((always_inline)) {
        for (; begin + elements <= count; begin += elements) body(begin, elements, index++);
    };
    if (block == 32) full(32);
    if (block == 64) full(64);
    if (block == 128) full(128);
    if (block == 256) full(256);
    while (begin < count) {
        const std::size_t elements = count - begin < block ? count - begin : block;
        body(begin, elements, index++);
        begin += elements;
    }
}

template <typename Code, typename Element>
void quantise_elements(const void *data, std::size_t count, std::size_t block, void *codes,
                       float *scales) noexcept {
    const auto *const from = static_cast<const typename Element::Storage *>(data);
    auto *const to = static_cast<typename Code::Storage *>(codes);
    for_blocks(count, block, [&](std::size_t begin, std::size_t elements, std::size_t index) {
        quantise_block<Code, Element>(from + begin, elements, to + begin, scales + index);
    });
}

template <typename Code, typename Element>
void dequantise_elements(const void *codes, const float *scales, std::size_t count,
                         std::size_t block, void *data) noexcept {
    const auto *const from = static_cast<const typename Code::Storage *>(codes);
    auto *const to = static_cast<typename Element::Storage *>(data);
    for_blocks(count, block, [&](std::size_t begin, std::size_t elements, std::size_t index) {
        dequantise_block<Code, Element>(from + begin, scales[index], elements, to + begin);
    });
}

// Partial sums stay in L1.
constexpr std::size_t tile = 1024;

template <typename Code>
VESCOMM_INLINE void sum_tile(const QuantisedSource *sources, std::size_t source_count,
                             std::size_t begin, std::size_t count, std::size_t index, float factor,
                             float *to) {
    alignas(64) float sums[tile];
    for (std::size_t source = 0; source < source_count; ++source) {
        const auto *codes =
            static_cast<const typename Code::Storage *>(sources[source].codes) + begin;
        const float scale = sources[source].scales[index];
        if (source == 0) {
            for (std::size_t i = 0; i < count; ++i) sums[i] = Code::decode(codes[i]) * scale;
        } else {
            for (std::size_t i = 0; i < count; ++i) sums[i] += Code::decode(codes[i]) * scale;
        }
    }
    for (std::size_t i = 0; i < count; ++i) to[begin + i] = canonical(sums[i] * factor);
}

template <typename Code>
void sum_elements(const QuantisedSource *sources, std::size_t source_count, std::size_t count,
                  std::size_t block, float factor, float *to) noexcept {
    for_blocks(count, block, [&](std::size_t begin, std::size_t elements, std::size_t index) {
        while (elements > tile) {
            sum_tile<Code>(sources, source_count, begin, tile, index, factor, to);
            begin += tile;
            elements -= tile;
        }
        sum_tile<Code>(sources, source_count, begin, elements, index, factor, to);
    });
}

}  // namespace

void quantise(CodeType codes_type, const void *from, vescomm_type_t type, std::size_t count,
              std::size_t block, void *codes, float *scales) noexcept {
    const bool int8 = codes_type == CodeType::int8;
    const auto run =
        type == VESCOMM_F32
            ? int8 ? quantise_elements<Int8Code, F32> : quantise_elements<F8e4m3Code, F32>
        : type == VESCOMM_BF16
            ? int8 ? quantise_elements<Int8Code, Bf16> : quantise_elements<F8e4m3Code, Bf16>
        : int8 ? quantise_elements<Int8Code, F16>
               : quantise_elements<F8e4m3Code, F16>;
    run(from, count, block, codes, scales);
}

void dequantise(CodeType codes_type, const void *codes, const float *scales, std::size_t count,
                std::size_t block, void *to, vescomm_type_t type) noexcept {
    const bool int8 = codes_type == CodeType::int8;
    const auto run =
        type == VESCOMM_F32
            ? int8 ? dequantise_elements<Int8Code, F32> : dequantise_elements<F8e4m3Code, F32>
        : type == VESCOMM_BF16
            ? int8 ? dequantise_elements<Int8Code, Bf16> : dequantise_elements<F8e4m3Code, Bf16>
        : int8 ? dequantise_elements<Int8Code, F16>
               : dequantise_elements<F8e4m3Code, F16>;
    run(codes, scales, count, block, to);
}

void sum_quantised(CodeType codes_type, const QuantisedSource *sources, std::size_t source_count,
                   std::size_t count, std::size_t block, float factor, float *to) noexcept {
    const auto run =
        codes_type == CodeType::int8 ? sum_elements<Int8Code> : sum_elements<F8e4m3Code>;
    run(sources, source_count, count, block, factor, to);
}

}  // namespace vescomm::fsdp::VESCOMM_ISA
