// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

// The largest number of elements of one call, so that the digits cannot overflow between carries.
inline constexpr std::size_t max_exact_count = std::size_t{1} << 30;

// Adds the squares of at most max_exact_count elements of type f32, bf16 or f16 to the words of an
// ExactSum, without carries: a digit changes by less than 2^62.
using AddExactSquares = void(std::int64_t *words, const void *from, vescomm_type_t type,
                             std::size_t count) noexcept;

namespace baseline {
AddExactSquares add_exact_squares;
}
#if defined(__x86_64__)
namespace x86_64_v3 {
AddExactSquares add_exact_squares;
}
namespace x86_64_v4 {
AddExactSquares add_exact_squares;
}
#endif

}  // namespace vescomm::fsdp
