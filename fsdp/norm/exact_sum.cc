// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/norm/exact_sum.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "execute/isa.h"
#include "execute/loops/exact_digits.h"
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
static_assert(ExactSum::digits == internal::exact_digits);
static_assert(ExactSum::min_exponent == internal::exact_min_exponent);

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
    internal::normalise_digits(words_.data());
}

double ExactSum::value() const noexcept {
    return internal::value_of_digits(words_.data());
}

}  // namespace vescomm::fsdp
