// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Averages of integers. Zone: per byte.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "execute/loops/loops.h"
#include "execute/loops/vectorise.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Vector instructions do not divide integers. A float with more bits than the dividend gives the
// same result: a quotient that is not whole differs from the next whole number by more than
// rounding adds.
template <typename T>
VESCOMM_INLINE void divide_each(void *data, std::size_t count, int divisor) {
    using Quotient =
        std::conditional_t<sizeof(T) == 8, T, std::conditional_t<sizeof(T) == 4, double, float>>;
    const auto x = static_cast<T *>(data);
    const auto by = static_cast<Quotient>(divisor);
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<T>(static_cast<Quotient>(x[i]) / by);
}

}  // namespace

void divide(void *x, vescomm_type_t type, std::size_t count, int divisor) noexcept {
    switch (type) {
        case VESCOMM_I8:
            return divide_each<std::int8_t>(x, count, divisor);
        case VESCOMM_U8:
            return divide_each<std::uint8_t>(x, count, divisor);
        case VESCOMM_I16:
            return divide_each<std::int16_t>(x, count, divisor);
        case VESCOMM_U16:
            return divide_each<std::uint16_t>(x, count, divisor);
        case VESCOMM_I32:
            return divide_each<std::int32_t>(x, count, divisor);
        case VESCOMM_U32:
            return divide_each<std::uint32_t>(x, count, divisor);
        case VESCOMM_I64:
            return divide_each<std::int64_t>(x, count, divisor);
        case VESCOMM_U64:
            return divide_each<std::uint64_t>(x, count, divisor);
        default:
            return;
    }
}

}  // namespace vescomm::internal::VESCOMM_ISA
