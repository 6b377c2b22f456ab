// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Sums of squares, for norms of gradients. Zone: per byte.
#include <cstddef>
#include <cstdint>

#include "execute/loops/elements.h"
#include "execute/loops/loops.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Number of running sums, enough to hide the latency of additions in L1, where they are held. All
// compilers vectorise a loop over them; they treat a few sums in registers differently.
constexpr std::size_t lanes = 64;

// The square of a float is exact in a double, so contraction would not change the result.
template <typename Element>
VESCOMM_INLINE void add_squares(double *sums, const typename Element::Storage *from,
                                std::size_t count) {
    VESCOMM_INDEPENDENT
    for (std::size_t k = 0; k < count; ++k) {
        const double x = Element::widen(from[k]);
        sums[k] += x * x;
    }
}

template <typename Element>
VESCOMM_INLINE double squares(const void *data, std::size_t count) {
    const auto from = static_cast<const typename Element::Storage *>(data);
    double sums[lanes] = {};
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes) add_squares<Element>(sums, from + i, lanes);
    add_squares<Element>(sums, from + i, count - i);
    for (std::size_t half = lanes / 2; half > 0; half /= 2)
        for (std::size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
    return canonical(sums[0]);
}

}  // namespace

double sum_of_squares(const void *from, vescomm_type_t type, std::size_t count) noexcept {
    return type == VESCOMM_F32 ? squares<F32>(from, count) : squares<Bf16>(from, count);
}

}  // namespace vescomm::internal::VESCOMM_ISA
