// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/round_bf16.h"

#include <cassert>
#include <iterator>

#include "execute/isa.h"

namespace vescomm::fsdp {

namespace {

// In the order of internal::isa_names.
constexpr RoundLoop *table[] = {
    baseline::round_to_bf16,
#if defined(__x86_64__)
    x86_64_v3::round_to_bf16,
    x86_64_v4::round_to_bf16,
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

}  // namespace

void round_to_bf16(std::uint16_t *to, const float *from, std::size_t count, std::uint64_t stream,
                   std::uint64_t first, int isa) noexcept {
    assert(isa >= 0 && isa < internal::supported_isas());
    table[isa](to, from, count, stream, first);
}

void round_to_bf16(std::uint16_t *to, const float *from, std::size_t count, std::uint64_t stream,
                   std::uint64_t first) noexcept {
    static const int fastest = internal::supported_isas() - 1;
    round_to_bf16(to, from, count, stream, first, fastest);
}

}  // namespace vescomm::fsdp
