// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/sgd.h"

#include <cassert>
#include <iterator>

#include "execute/isa.h"

namespace vescomm::fsdp {

namespace {

// In the order of internal::isa_names.
constexpr SgdLoop *table[] = {
    baseline::sgd,
#if defined(__x86_64__)
    x86_64_v3::sgd,
    x86_64_v4::sgd,
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

}  // namespace

void sgd(float *p, const float *g, float *m, std::size_t n, const SgdStep &step, int isa) noexcept {
    assert(isa >= 0 && isa < internal::supported_isas());
    table[isa](p, g, m, n, step);
}

void sgd(float *p, const float *g, float *m, std::size_t n, const SgdStep &step) noexcept {
    static const int fastest = internal::supported_isas() - 1;
    sgd(p, g, m, n, step, fastest);
}

}  // namespace vescomm::fsdp
