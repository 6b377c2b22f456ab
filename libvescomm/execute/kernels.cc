// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/kernels.h"

#include <iterator>

#include "execute/isa.h"
#include "execute/kernels_isa.h"

namespace vescomm {

namespace {

#define VESCOMM_KERNELS(isa) \
    vescomm_convert_##isa, vescomm_reduce_##isa, vescomm_sum_of_squares_##isa

// In the order of isa_names.
constexpr Kernels table[] = {
    {isa_names[0], VESCOMM_KERNELS(baseline)},
#if defined(__x86_64__)
    {isa_names[1], VESCOMM_KERNELS(x86_64_v3)},
    {isa_names[2], VESCOMM_KERNELS(x86_64_v4)},
#endif
};
static_assert(std::size(table) == std::size(isa_names));

}  // namespace

std::span<const Kernels> supported_kernels() noexcept {
    static const int supported = supported_isas();
    return std::span(table).first(supported);
}

const Kernels &kernels() noexcept {
    return supported_kernels().back();
}

}  // namespace vescomm
