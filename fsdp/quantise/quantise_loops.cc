// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of block_quantise.h. Zone: per byte.
//
// The conversion between codes and floats vectorises best over many elements, also if blocks are
// small. So it runs over tiles of whole blocks, or over parts of a large block; the multiplications
// by scales in between run block by block.
#include "fsdp/quantise/quantise_loops.h"

#include "execute/loops/codes.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

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

constexpr std::size_t max_tile = 1024;  // elements; a tile of floats stays in L1

// A tile: parts of `part` elements, the last one may be shorter. Each part is a block, or all of
// the tile is a part of one block.
struct Tile {
    std::size_t begin;
    std::size_t count;
    std::size_t part;
    std::size_t block;  // index of that of the first part
};

template <typename Body>
VESCOMM_INLINE void for_tiles(std::size_t count, std::size_t block, const Body &body) {
    if (block < max_tile) {
        const std::size_t blocks = max_tile / block, elements = blocks * block;
        for (std::size_t begin = 0, index = 0; begin < count; begin += elements, index += blocks) {
            const std::size_t left = count - begin;
            body(Tile{begin, left < elements ? left : elements, block, index});
        }
        return;
    }
    std::size_t index = 0;
    for (std::size_t begin = 0; begin < count; ++index) {
        std::size_t left = count - begin < block ? count - begin : block;
        while (left > 0) {
            const std::size_t elements = left < max_tile ? left : max_tile;
            body(Tile{begin, elements, elements, index});
            begin += elements;
            left -= elements;
        }
    }
}

// Calls body(first element in the tile, elements, index of the block) for each part.
template <typename Body>
VESCOMM_INLINE void for_parts(const Tile &tile, const Body &body) {
    std::size_t index = tile.block;
    for (std::size_t first = 0; first < tile.count; first += tile.part, ++index) {
        const std::size_t left = tile.count - first;
        body(first, left < tile.part ? left : tile.part, index);
    }
}

template <typename Code, typename Element>
void quantise_elements(const void *data, std::size_t count, std::size_t block, void *codes,
                       float *scales) noexcept {
    const auto *const from = static_cast<const typename Element::Storage *>(data);
    auto *const to = static_cast<typename Code::Storage *>(codes);
    alignas(64) float scaled[max_tile];
    Factors factors = {0, 0, true};
    for_tiles(count, block, [&](const Tile &tile) {
        for_parts(tile, [&](std::size_t first, std::size_t elements, std::size_t index) {
            const std::size_t begin = tile.begin + first;
            if (begin == index * block) {
                const std::size_t whole = count - begin < block ? count - begin : block;
                factors =
                    factors_of<Code>(max_magnitude<Element>(from + begin, whole), scales + index);
            }
            float *__restrict__ const part = scaled + first;
            if (factors.zero) {
                for (std::size_t i = 0; i < elements; ++i) part[i] = 0;
                return;
            }
            const float shift = factors.shift, reciprocal = factors.reciprocal;
            for (std::size_t i = 0; i < elements; ++i)
                part[i] = Element::widen(from[begin + i]) * shift * reciprocal;
        });
        typename Code::Storage *__restrict__ const tile_codes = to + tile.begin;
        for (std::size_t i = 0; i < tile.count; ++i) tile_codes[i] = Code::encode(scaled[i]);
    });
}

template <typename Code>
VESCOMM_INLINE void decode_tile(const void *codes, const Tile &tile, float *__restrict__ values) {
    const auto *__restrict__ const from =
        static_cast<const typename Code::Storage *>(codes) + tile.begin;
    for (std::size_t i = 0; i < tile.count; ++i) values[i] = Code::decode(from[i]);
}

template <typename Code, typename Element>
void dequantise_elements(const void *codes, const float *scales, std::size_t count,
                         std::size_t block, void *data) noexcept {
    auto *const to = static_cast<typename Element::Storage *>(data);
    alignas(64) float values[max_tile];
    for_tiles(count, block, [&](const Tile &tile) {
        decode_tile<Code>(codes, tile, values);
        for_parts(tile, [&](std::size_t first, std::size_t elements, std::size_t index) {
            typename Element::Storage *__restrict__ const part = to + tile.begin + first;
            const float scale = scales[index];
            for (std::size_t i = 0; i < elements; ++i)
                part[i] = Element::narrow(values[first + i] * scale);
        });
    });
}

template <typename Code>
void sum_elements(const QuantisedSource *sources, std::size_t source_count, std::size_t count,
                  std::size_t block, float factor, float *to) noexcept {
    alignas(64) float values[max_tile], sums[max_tile];
    for_tiles(count, block, [&](const Tile &tile) {
        for (std::size_t source = 0; source < source_count; ++source) {
            decode_tile<Code>(sources[source].codes, tile, values);
            const float *const scales = sources[source].scales;
            for_parts(tile, [&](std::size_t first, std::size_t elements, std::size_t index) {
                float *__restrict__ const part = sums + first;
                const float *__restrict__ const terms = values + first;
                const float scale = scales[index];
                if (source == 0) {
                    for (std::size_t i = 0; i < elements; ++i) part[i] = terms[i] * scale;
                } else {
                    for (std::size_t i = 0; i < elements; ++i) part[i] += terms[i] * scale;
                }
            });
        }
        for (std::size_t i = 0; i < tile.count; ++i)
            to[tile.begin + i] = canonical(sums[i] * factor);
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
