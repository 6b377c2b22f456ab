// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops of stochastic_rounding.h. Zone: per byte.
#include <algorithm>

#include "execute/loops/random_bits.h"
#include "execute/loops/stochastic_rounding.h"
#include "fsdp/optimizers/stochastic_rounding.h"

namespace vescomm::fsdp::VESCOMM_ISA {
namespace {

using namespace internal::VESCOMM_ISA;

constexpr std::size_t words = 16;
constexpr std::size_t lanes = 4 * words;

// Words first, then elements: both loops become vector instructions.
template <typename Element>
VESCOMM_INLINE void round_all(std::uint16_t *to, const float *from, std::size_t count,
                              std::uint64_t stream, std::uint64_t first) {
    const auto before = static_cast<std::size_t>(first % 4);  // of the first word, not wanted
    std::uint64_t word = first / 4;
    for (std::size_t done = 0; done < count;) {
        std::uint64_t random[words];
        for (std::size_t i = 0; i < words; ++i) random[i] = internal::random_word(stream, word + i);
        std::uint16_t bits[lanes];
        for (std::size_t i = 0; i < words; ++i)
            for (std::size_t lane = 0; lane < 4; ++lane)
                bits[4 * i + lane] = static_cast<std::uint16_t>(random[i] >> (16 * lane));
        const std::size_t skip = done == 0 ? before : 0;
        const std::size_t now = std::min(lanes - skip, count - done);
        if (now == lanes) {
            for (std::size_t i = 0; i < lanes; ++i)
                to[done + i] = round_stochastically(Element{}, from[done + i], bits[i]);
        } else {
            for (std::size_t i = 0; i < now; ++i)
                to[done + i] = round_stochastically(Element{}, from[done + i], bits[skip + i]);
        }
        done += now;
        word += words;
    }
}

}  // namespace

void round_to_bf16(std::uint16_t *to, const float *from, std::size_t count, std::uint64_t stream,
                   std::uint64_t first) noexcept {
    round_all<Bf16>(to, from, count, stream, first);
}

void round_to_f16(std::uint16_t *to, const float *from, std::size_t count, std::uint64_t stream,
                  std::uint64_t first) noexcept {
    round_all<F16>(to, from, count, stream, first);
}

}  // namespace vescomm::fsdp::VESCOMM_ISA
