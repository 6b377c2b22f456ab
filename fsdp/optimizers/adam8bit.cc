// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/adam8bit.h"

#include <cassert>
#include <iterator>

#include "execute/isa.h"

namespace vescomm::fsdp {

namespace {

#define VESCOMM_ADAM8BIT_LOOPS(isa) \
    { isa::adam8bit, isa::encode_moments, isa::decode_moments }

// In the order of internal::isa_names.
constexpr Adam8bitLoops table[] = {
    VESCOMM_ADAM8BIT_LOOPS(baseline),
#if defined(__x86_64__)
    VESCOMM_ADAM8BIT_LOOPS(x86_64_v3),
    VESCOMM_ADAM8BIT_LOOPS(x86_64_v4),
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

}  // namespace

std::span<const Adam8bitLoops> supported_adam8bit_loops() noexcept {
    static const int supported = internal::supported_isas();
    return std::span(table).first(static_cast<std::size_t>(supported));
}

void adam8bit(float *p, const float *g, const Adam8bitState &state, std::size_t n,
              const AdamWStep &step) noexcept {
    assert(step.step >= 1);
    supported_adam8bit_loops().back().step(p, g, state, n, adamw_constants(step));
}

}  // namespace vescomm::fsdp
