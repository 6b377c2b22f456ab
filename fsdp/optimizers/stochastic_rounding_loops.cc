// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of stochastic_rounding.h. Zone: per byte.
#include <algorithm>

#include "execute/loops/elements.h"
#include "fsdp/optimizers/stochastic_rounding.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

struct ToBf16 {
    VESCOMM_INLINE std::uint16_t round(float x, std::uint32_t random) {
        const std::uint32_t bits = as_bits(x);
        const std::uint32_t magnitude = bits & 0x7fffffff;
        // Infinity has no bits below, so no carry changes it.
        return static_cast<std::uint16_t>(magnitude > infinity ? 0x7fc0 : (bits + random) >> 16);
    }
};

struct ToF16 {
    VESCOMM_INLINE std::uint16_t round(float x, std::uint32_t random) {
        const std::uint32_t bits = as_bits(x);
        const std::uint32_t magnitude = bits & 0x7fffffff;
        const std::uint32_t normal = ((magnitude + (random >> 3)) >> 13) - (112U << 10);
        // Below the smallest normal number: in steps of 2^-40, of which a code has 2^16.
        const float small = as_float(std::min(magnitude, power_bits(-14)));
        const auto steps = static_cast<std::uint32_t>(static_cast<std::int32_t>(small * 0x1p40f));
        const std::uint32_t code =
            magnitude < power_bits(-14) ? (steps + random) >> 16 : std::min(normal, 0x7c00U);
        return static_cast<std::uint16_t>(magnitude > infinity ? 0x7e00
                                                               : code | (bits >> 16 & 0x8000));
    }
};

constexpr std::size_t words = 16;
constexpr std::size_t lanes = 4 * words;

// Words first, then elements: both loops become vector instructions.
template <typename To>
VESCOMM_INLINE void round_all(std::uint16_t *to, const float *from, std::size_t count,
                              std::uint64_t stream, std::uint64_t first) {
    const auto before = static_cast<std::size_t>(first % 4);  // of the first word, not wanted
    std::uint64_t word = first / 4;
    for (std::size_t done = 0; done < count;) {
        std::uint64_t random[words];
        for (std::size_t i = 0; i < words; ++i) random[i] = rounding_word(stream, word + i);
        std::uint16_t bits[lanes];
        for (std::size_t i = 0; i < words; ++i)
            for (std::size_t lane = 0; lane < 4; ++lane)
                bits[4 * i + lane] = static_cast<std::uint16_t>(random[i] >> (16 * lane));
        const std::size_t skip = done == 0 ? before : 0;
        const std::size_t now = std::min(lanes - skip, count - done);
        if (now == lanes) {
            for (std::size_t i = 0; i < lanes; ++i)
                to[done + i] = To::round(from[done + i], bits[i]);
        } else {
            for (std::size_t i = 0; i < now; ++i)
                to[done + i] = To::round(from[done + i], bits[skip + i]);
        }
        done += now;
        word += words;
    }
}

}  // namespace

void round_to_bf16(std::uint16_t *to, const float *from, std::size_t count, std::uint64_t stream,
                   std::uint64_t first) noexcept {
    round_all<ToBf16>(to, from, count, stream, first);
}

void round_to_f16(std::uint16_t *to, const float *from, std::size_t count, std::uint64_t stream,
                  std::uint64_t first) noexcept {
    round_all<ToF16>(to, from, count, stream, first);
}

}  // namespace vescomm::fsdp::VESCOMM_ISA
