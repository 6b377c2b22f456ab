// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops that change the type of elements. Zone: per byte.
#include <cstddef>

#include "execute/loops/elements.h"
#include "execute/loops/loops.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

template <typename To, typename From>
void convert(void *to, const void *from, std::size_t count) noexcept {
    const auto y = static_cast<typename To::Storage *__restrict__>(to);
    const auto x = static_cast<const typename From::Storage *__restrict__>(from);
    for (std::size_t i = 0; i < count; ++i) y[i] = To::narrow(From::widen(x[i]));
}

// From a wide type to any other.
template <typename Wide>
Convert *from_wide(vescomm_type_t to) noexcept {
    switch (to) {
        case VESCOMM_BF16:
            return &convert<Bf16, Wide>;
        case VESCOMM_F16:
            return &convert<F16, Wide>;
        case VESCOMM_F8E4M3:
            return &convert<F8e4m3, Wide>;
        case VESCOMM_F8E5M2:
            return &convert<F8e5m2, Wide>;
        default:
            return nullptr;
    }
}

// To a wide type from any other.
template <typename Wide>
Convert *to_wide(vescomm_type_t from) noexcept {
    switch (from) {
        case VESCOMM_BF16:
            return &convert<Wide, Bf16>;
        case VESCOMM_F16:
            return &convert<Wide, F16>;
        case VESCOMM_F8E4M3:
            return &convert<Wide, F8e4m3>;
        case VESCOMM_F8E5M2:
            return &convert<Wide, F8e5m2>;
        default:
            return nullptr;
    }
}

}  // namespace

Convert *find_convert(vescomm_type_t to, vescomm_type_t from) noexcept {
    if (to == VESCOMM_F64 && from == VESCOMM_F32) return &convert<F64, F32>;
    if (to == VESCOMM_F32 && from == VESCOMM_F64) return &convert<F32, F64>;
    if (to == VESCOMM_F32) return to_wide<F32>(from);
    if (to == VESCOMM_F64) return to_wide<F64>(from);
    if (from == VESCOMM_F32) return from_wide<F32>(to);
    if (from == VESCOMM_F64) return from_wide<F64>(to);
    return nullptr;
}

}  // namespace vescomm::internal::VESCOMM_ISA
