// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/elements.h"

// Stochastic rounding of one element to bf16 or f16, for the loops of fsdp/optimizers and for the
// kernels of gpu/kernels. `random`: 16 random bits. fsdp/optimizers/stochastic_rounding.h explains
// the rounding. NaNs become the positive quiet NaN.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

VESCOMM_INLINE std::uint16_t round_stochastically(Bf16, float x, std::uint32_t random) {
    const std::uint32_t bits = as_bits(x);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    // Infinity has no bits below, so no carry changes it.
    return static_cast<std::uint16_t>(magnitude > infinity ? 0x7fc0 : (bits + random) >> 16);
}

VESCOMM_INLINE std::uint16_t round_stochastically(F16, float x, std::uint32_t random) {
    const std::uint32_t bits = as_bits(x);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t min_normal = power_bits(-14);
    const std::uint32_t normal = ((magnitude + (random >> 3)) >> 13) - (112U << 10);
    // Below the smallest normal number: in steps of 2^-40, of which a code has 2^16.
    const float small = as_float(magnitude < min_normal ? magnitude : min_normal);
    const auto steps = static_cast<std::uint32_t>(static_cast<std::int32_t>(small * 0x1p40f));
    const std::uint32_t code = magnitude < min_normal ? (steps + random) >> 16
                               : normal < 0x7c00      ? normal
                                                      : 0x7c00;
    return static_cast<std::uint16_t>(magnitude > infinity ? 0x7e00 : code | (bits >> 16 & 0x8000));
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
