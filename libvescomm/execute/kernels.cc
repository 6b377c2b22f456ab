// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/kernels.h"

#include <cassert>
#include <cstring>
#include <iterator>

#include "execute/isa.h"
#include "execute/tiles.h"

namespace vescomm::internal {

namespace {

#define VESCOMM_LOOPS(isa) \
    { isa::find_fold, isa::find_convert, isa::divide, isa::stream, isa::sum_of_squares }

// In the order of isa_names.
constexpr Kernels table[] = {
    {isa_names[0], VESCOMM_LOOPS(baseline)},
#if defined(__x86_64__)
    {isa_names[1], VESCOMM_LOOPS(x86_64_v3)},
    {isa_names[2], VESCOMM_LOOPS(x86_64_v4)},
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

void Kernels::convert(void *to, vescomm_type_t to_type, const void *from, vescomm_type_t from_type,
                      std::size_t count, bool streaming) const noexcept {
    assert(can_convert(to_type, from_type));
    if (to_type != from_type) {
        loops.convert(to_type, from_type)(to, from, count);
        return;
    }
    if (to == from || count == 0) return;
    const std::size_t bytes = count * vescomm_type_get_bytes(to_type);
    if (!streaming) {
        std::memcpy(to, from, bytes);
        return;
    }
    loops.stream(to, from, bytes);
    fence_streams();
}

}  // namespace vescomm::internal
