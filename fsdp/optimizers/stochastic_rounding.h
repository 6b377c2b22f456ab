// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding to bf16 and f16. A value between two neighbours becomes the one farther from
// zero with the probability of its distance from the other one, in steps of 2^-16 of the distance
// of the neighbours:
//
//     bits of an f32    │ kept: sign, exponent, 7 bits │ 16 bits below │
//     random bits                                      │ 0 to 65535    │   added; the carry rounds
//     up
//
// The mean of the results is the value, and a value of the type stays as it is. Beyond the largest
// finite value the neighbour is infinity.
//
// f16 keeps 10 bits, and the 13 below take 13 of the random bits. Its subnormal numbers are
// multiples of 2^-24; what a value has below 2^-40 is dropped first, so the mean may be closer to
// zero by that.
//
// Random bits are a function of a stream and of the number of an element
// (execute/loops/random_bits.h), so the results do not depend on cuts. Kernels on device memory use
// the same functions.
//
// Source: Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015.
#pragma once

#include <cstddef>
#include <cstdint>

#include "execute/loops/random_bits.h"
#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

// The stream of one parameter in one step. `key`: that of vescomm_fsdp_initialise(), whose streams
// are functions of the program.
static constexpr std::uint64_t rounding_stream(std::uint64_t key, std::int64_t step) {
    constexpr std::uint64_t purpose = 0x726f756e64;  // "round"
    return internal::mix_bits(internal::mix_bits(key ^ purpose) +
                              internal::stream_gamma * static_cast<std::uint64_t>(step));
}

// Rounds the elements [first, first + count) of a parameter. NaNs become the positive quiet NaN.
using RoundLoop = void(std::uint16_t *to, const float *from, std::size_t count,
                       std::uint64_t stream, std::uint64_t first) noexcept;

// The loop for bf16 or f16.
RoundLoop *rounding_loop(vescomm_type_t type) noexcept;
// Variant for tests that uses the instruction set isa_names[isa]; isa is below supported_isas().
RoundLoop *rounding_loop(vescomm_type_t type, int isa) noexcept;

namespace baseline {
RoundLoop round_to_bf16, round_to_f16;
}
#if defined(__x86_64__)
namespace x86_64_v3 {
RoundLoop round_to_bf16, round_to_f16;
}
namespace x86_64_v4 {
RoundLoop round_to_bf16, round_to_f16;
}
#endif

}  // namespace vescomm::fsdp
