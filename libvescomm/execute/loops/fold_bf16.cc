// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Sums of bf16, and of f32 into bf16, which widen and round in the loop. These are the most
// frequent sums in training; every other pair of types goes through a tile of accumulators
// (reduce.cc).
// Zone: per byte.
#include <cstddef>
#include <cstdint>

#include "execute/loops/elements.h"
#include "execute/loops/loops.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The element that one step of a loop reads from a source. Two bf16 are read as one word, because a
// shift and a mask widen them; widening them one by one takes shuffles.
enum class Part { f32, low, high, last };

template <Part part>
VESCOMM_INLINE float part_of(const char *source, std::size_t i) {
    if constexpr (part == Part::f32) return reinterpret_cast<const float *>(source)[i];
    if constexpr (part == Part::last)
        return Bf16::widen(reinterpret_cast<const std::uint16_t *>(source)[2 * i]);
    std::uint32_t pair;
    __builtin_memcpy(&pair, source + sizeof(pair) * i, sizeof(pair));
    return as_float(part == Part::low ? pair << 16 : pair & 0xffff0000);
}

// Most sources in one call. Sources of f32 are partial sums of other nodes, which are few.
template <bool from_f32>
constexpr int max = from_f32 ? 8 : 16;

struct Pointers {
    const char *of[max<false>];
};

// ((s0 + s1) + ...) + s[k], with *start before s0 if there is one.
template <Part part, int k>
VESCOMM_INLINE float summed(const float *start, const Pointers &s, std::size_t i) {
    const float x = part_of<part>(s.of[k], i);
    if constexpr (k > 0) return summed<part, k - 1>(start, s, i) + x;
    else return start != nullptr ? *start + x : x;
}

VESCOMM_INLINE void put(float *to, std::size_t i, float x) {
    to[i] = canonical(x);
}

VESCOMM_INLINE void put(std::uint16_t *to, std::size_t i, float x) {
    to[i] = Bf16::narrow(x);
}

// All template arguments are constants of the loop.
template <bool from_f32, bool started, int n, typename To>
VESCOMM_INLINE void sum_exactly(const float *start, const Pointers &pointers, To *to,
                                std::size_t count, float scale) {
    Pointers s;  // in registers
    for (int k = 0; k < n; ++k) s.of[k] = pointers.of[k];
    const auto at = [start](std::size_t i) { return started ? start + i : nullptr; };

    if constexpr (from_f32) {
        VESCOMM_INDEPENDENT
        for (std::size_t i = 0; i < count; ++i)
            put(to, i, scale * summed<Part::f32, n - 1>(at(i), s, i));
        return;
    }
    const std::size_t pairs = count / 2;
    VESCOMM_INDEPENDENT
    for (std::size_t i = 0; i < pairs; ++i) {
        const float low = scale * summed<Part::low, n - 1>(at(2 * i), s, i);
        const float high = scale * summed<Part::high, n - 1>(at(2 * i + 1), s, i);
        if constexpr (sizeof(To) == sizeof(float)) {
            put(to, 2 * i, low);
            put(to, 2 * i + 1, high);
        } else {
            const std::uint32_t pair =
                Bf16::narrow(low) | static_cast<std::uint32_t>(Bf16::narrow(high)) << 16;
            __builtin_memcpy(to + 2 * i, &pair, sizeof(pair));
        }
    }
    if (count % 2) put(to, 2 * pairs, scale * summed<Part::last, n - 1>(at(2 * pairs), s, pairs));
}

// Instantiates a loop for each number of sources.
template <bool from_f32, bool started, typename To, int n = max<from_f32>>
VESCOMM_INLINE void sum_any(int number, const float *start, const Pointers &s, To *to,
                            std::size_t count, float scale) {
    if (number == n) {
        sum_exactly<from_f32, started, n>(start, s, to, count, scale);
    } else if constexpr (n > 1) {
        sum_any<from_f32, started, To, n - 1>(number, start, s, to, count, scale);
    }
}

template <bool from_f32, typename To>
void sum(const FoldArguments &a) noexcept {
    Pointers s;
    for (int k = 0; k < a.n; ++k)
        s.of[k] = static_cast<const char *>(a.sources[k]) +
                  a.first * (from_f32 ? sizeof(float) : sizeof(std::uint16_t));
    const auto start = static_cast<const float *>(a.start);
    const auto to = static_cast<To *>(a.to);
    const auto scale = static_cast<float>(a.scale);
    if (start != nullptr) sum_any<from_f32, true>(a.n, start, s, to, a.count, scale);
    else sum_any<from_f32, false>(a.n, start, s, to, a.count, scale);
}

}  // namespace

FoldLoop find_bf16_sum(vescomm_type_t to, vescomm_type_t from) noexcept {
    if (from == VESCOMM_BF16 && to == VESCOMM_BF16) return {&sum<false, std::uint16_t>, max<false>};
    if (from == VESCOMM_BF16 && to == VESCOMM_F32) return {&sum<false, float>, max<false>};
    if (from == VESCOMM_F32 && to == VESCOMM_BF16) return {&sum<true, std::uint16_t>, max<true>};
    return {};
}

}  // namespace vescomm::internal::VESCOMM_ISA
