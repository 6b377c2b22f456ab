// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/adamw.h"

#include <cassert>
#include <iterator>

#include "execute/isa.h"
#include "fsdp/adamw_isa.h"

namespace vescomm::fsdp {

namespace {

// In the order of internal::isa_names.
constexpr decltype(&vescomm_adamw_baseline) table[] = {
    vescomm_adamw_baseline,
#if defined(__x86_64__)
    vescomm_adamw_x86_64_v3,
    vescomm_adamw_x86_64_v4,
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

}  // namespace

void adamw(float *p, const float *g, float *m, float *v, std::size_t n, const AdamWStep &step,
           int isa) noexcept {
    assert(step.step >= 1 && isa >= 0 && isa < internal::supported_isas());
    const vescomm_adamw_t values = adamw_constants(step);
    table[isa](p, g, m, v, n, &values);
}

void adamw(float *p, const float *g, float *m, float *v, std::size_t n,
           const AdamWStep &step) noexcept {
    static const int fastest = internal::supported_isas() - 1;
    adamw(p, g, m, v, n, step, fastest);
}

}  // namespace vescomm::fsdp
