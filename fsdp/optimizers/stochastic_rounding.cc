// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/stochastic_rounding.h"

#include <cassert>
#include <iterator>

#include "execute/isa.h"

namespace vescomm::fsdp {

namespace {

struct Loops {
    RoundLoop *to_bf16, *to_f16;
};

// In the order of internal::isa_names.
constexpr Loops table[] = {
    {baseline::round_to_bf16, baseline::round_to_f16},
#if defined(__x86_64__)
    {x86_64_v3::round_to_bf16, x86_64_v3::round_to_f16},
    {x86_64_v4::round_to_bf16, x86_64_v4::round_to_f16},
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

}  // namespace

RoundLoop *rounding_loop(vescomm_type_t type, int isa) noexcept {
    assert(type == VESCOMM_BF16 || type == VESCOMM_F16);
    assert(isa >= 0 && isa < internal::supported_isas());
    return type == VESCOMM_BF16 ? table[isa].to_bf16 : table[isa].to_f16;
}

RoundLoop *rounding_loop(vescomm_type_t type) noexcept {
    return rounding_loop(type, internal::supported_isas() - 1);
}

}  // namespace vescomm::fsdp
