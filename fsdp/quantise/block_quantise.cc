// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/quantise/block_quantise.h"

#include <cassert>
#include <iterator>

#include "execute/isa.h"

namespace vescomm::fsdp {

namespace {

#define VESCOMM_QUANTISE_LOOPS(isa) \
    { isa::quantise, isa::dequantise, isa::sum_quantised }

// In the order of internal::isa_names.
constexpr QuantiseLoops table[] = {
    VESCOMM_QUANTISE_LOOPS(baseline),
#if defined(__x86_64__)
    VESCOMM_QUANTISE_LOOPS(x86_64_v3),
    VESCOMM_QUANTISE_LOOPS(x86_64_v4),
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

const QuantiseLoops &loops() noexcept {
    return supported_quantise_loops().back();
}

[[maybe_unused]] bool is_source(vescomm_type_t type) noexcept {
    return type == VESCOMM_F32 || type == VESCOMM_BF16 || type == VESCOMM_F16;
}

}  // namespace

std::span<const QuantiseLoops> supported_quantise_loops() noexcept {
    static const int supported = internal::supported_isas();
    return std::span(table).first(static_cast<std::size_t>(supported));
}

void quantise(CodeType codes_type, const void *from, vescomm_type_t type, std::size_t count,
              std::size_t block, void *codes, float *scales) noexcept {
    assert(block > 0 && is_source(type));
    loops().quantise(codes_type, from, type, count, block, codes, scales);
}

void dequantise(CodeType codes_type, const void *codes, const float *scales, std::size_t count,
                std::size_t block, void *to, vescomm_type_t type) noexcept {
    assert(block > 0 && is_source(type));
    loops().dequantise(codes_type, codes, scales, count, block, to, type);
}

void sum_quantised(CodeType codes_type, std::span<const QuantisedSource> sources, std::size_t count,
                   std::size_t block, float factor, float *to) noexcept {
    assert(block > 0 && !sources.empty());
    loops().sum(codes_type, sources.data(), sources.size(), count, block, factor, to);
}

}  // namespace vescomm::fsdp
