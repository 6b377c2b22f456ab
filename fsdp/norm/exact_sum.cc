// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/norm/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <iterator>
#include <limits>

#include "execute/isa.h"
#include "fsdp/norm/exact_sum_loops.h"

namespace vescomm::fsdp {

namespace {

// In the order of internal::isa_names.
constexpr AddExactSquares *table[] = {
    baseline::add_exact_squares,
#if defined(__x86_64__)
    x86_64_v3::add_exact_squares,
    x86_64_v4::add_exact_squares,
#endif
};
static_assert(std::size(table) == std::size(internal::isa_names));

constexpr std::int64_t digit_mask = 0xffffffff;

}  // namespace

void ExactSum::add_squares(const void *from, vescomm_type_t type, std::size_t count,
                           int isa) noexcept {
    assert(type == VESCOMM_F32 || type == VESCOMM_BF16 || type == VESCOMM_F16);
    assert(isa >= 0 && isa < internal::supported_isas());
    const std::size_t bytes = vescomm_type_get_bytes(type);
    const auto *next = static_cast<const std::byte *>(from);
    while (count > 0) {
        const std::size_t part = std::min(count, max_exact_count);
        table[isa](words_.data(), next, type, part);
        normalise();
        next += part * bytes;
        count -= part;
    }
}

void ExactSum::add_squares(const void *from, vescomm_type_t type, std::size_t count) noexcept {
    static const int fastest = internal::supported_isas() - 1;
    add_squares(from, type, count, fastest);
}

void ExactSum::merge(const ExactSum &other) noexcept {
    for (std::size_t k = 0; k < word_count; ++k) words_[k] += other.words_[k];
    normalise();
}

void ExactSum::normalise() noexcept {
    for (int k = 0; k + 1 < digits; ++k) {
        words_[k + 1] += words_[k] >> 32;  // arithmetic: rounds down, so the digit is not negative
        words_[k] &= digit_mask;
    }
}

double ExactSum::value() const noexcept {
    if (nans() > 0) return std::numeric_limits<double>::quiet_NaN();
    if (infinities() > 0) return std::numeric_limits<double>::infinity();
    int top = digits - 1;
    while (top >= 0 && words_[top] == 0) --top;
    if (top < 0) return 0;
    // 64 bits from the highest bit on, in the digits top, top - 1 and top - 2. All lower bits are
    // represented by the last of the 64, which is below the last bit of a double: rounding to odd,
    // see round_to_odd() in execute/loops/elements.h.
    const auto digit = [this](int k) { return k < 0 ? 0 : static_cast<std::uint64_t>(words_[k]); };
    const int width = std::bit_width(digit(top));  // at most 32
    std::uint64_t bits = digit(top) << (64 - width) | digit(top - 1) << (32 - width);
    bits |= digit(top - 2) >> width;
    bool lower = (digit(top - 2) & ((std::uint64_t{1} << width) - 1)) != 0;
    for (int k = 0; k < top - 2; ++k) lower = lower || words_[k] != 0;
    if (lower) bits |= 1;
    return std::ldexp(static_cast<double>(bits), min_exponent + 32 * top + width - 64);
}

}  // namespace vescomm::fsdp
