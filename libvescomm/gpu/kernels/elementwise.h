// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/kernels/slabs.h"

// Operations on the elements of slabs. Results have the bits of execute/kernels.h.
namespace vescomm::internal::VESCOMM_ISA {
namespace {

// The type is an unsigned integer as large as the elements: zero has the same bits in all types.
struct Zero {
    using Parameters = gpu_kernel::Slabs;
    using Shared = Nothing;
    static constexpr int phases = 1;
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        with_bits(p.target_type, [&](auto bits) {
            using Storage = decltype(bits);
            constexpr int n = elements_of_run<Storage>;
            const Tile tile = tile_of(p, block);
            Storage *const to = static_cast<Storage *>(p.target) + tile.target;
            for_runs<n>(to, tile.count, thread, [&](std::int64_t first, int count) {
                Run<Storage, n>::store(to + first, typename Run<Storage, n>::Vector{}, count);
            });
        });
    }
};

// Moves bits, so the type is an unsigned integer as large as the elements.
struct Copy {
    using Parameters = gpu_kernel::Slabs;
    using Shared = Nothing;
    static constexpr int phases = 1;
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        with_bits(p.target_type, [&](auto bits) {
            using Storage = decltype(bits);
            map_tile<Storage, Storage>(p, block, thread, [](Storage x) { return x; });
        });
    }
};

// From f32 or f64 to any float, or to them from any float.
struct Cast {
    using Parameters = gpu_kernel::Slabs;
    using Shared = Nothing;
    static constexpr int phases = 1;

    template <typename To, typename From>
    VESCOMM_INLINE void cast(const Parameters &p, unsigned block, unsigned thread) {
        map_tile<typename To::Storage, typename From::Storage>(
            p, block, thread, [](typename From::Storage x) { return To::narrow(From::widen(x)); });
    }
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        if (p.source_type == VESCOMM_F32)
            return with_float(p.target_type,
                              [&](auto to) { cast<decltype(to), F32>(p, block, thread); });
        if (p.source_type == VESCOMM_F64)
            return with_float(p.target_type,
                              [&](auto to) { cast<decltype(to), F64>(p, block, thread); });
        if (p.target_type == VESCOMM_F32)
            return with_float(p.source_type,
                              [&](auto from) { cast<F32, decltype(from)>(p, block, thread); });
        with_float(p.source_type, [&](auto from) { cast<F64, decltype(from)>(p, block, thread); });
    }
};

// The product of an element and a factor, which is rounded to the type of the arithmetic first.
template <typename Element>
VESCOMM_INLINE typename Element::Storage scaled(typename Element::Storage x, double factor) {
    using Wide = decltype(Element::widen(x));
    return Element::narrow(static_cast<Wide>(factor) * Element::widen(x));
}

struct Scale {
    using Parameters = gpu_kernel::Elementwise;
    using Shared = Nothing;
    static constexpr int phases = 1;
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        with_float(p.slabs.target_type, [&](auto element) {
            using Element = decltype(element);
            using Storage = typename Element::Storage;
            const double factor = p.factor;
            change_tile<Storage>(p.slabs, block, thread,
                                 [=](Storage x) { return scaled<Element>(x, factor); });
        });
    }
};

// Infinities and NaNs have the largest exponent. f64 is not among the types of unscale.
VESCOMM_INLINE bool is_finite(float x) {
    return (as_bits(x) & 0x7fffffff) < infinity;
}
VESCOMM_INLINE bool is_finite(double x) {
    return x - x == 0;
}

// Scale, and a flag if a product is not finite.
struct Unscale {
    using Parameters = gpu_kernel::Elementwise;
    using Shared = Nothing;
    static constexpr int phases = 1;
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        with_float(p.slabs.target_type, [&](auto element) {
            using Element = decltype(element);
            using Storage = typename Element::Storage;
            const double factor = p.factor;
            bool overflow = false;
            change_tile<Storage>(p.slabs, block, thread, [&](Storage x) {
                const Storage y = scaled<Element>(x, factor);
                overflow = overflow || !is_finite(Element::widen(y));
                return y;
            });
            if (overflow) set_flag(p.overflow);
        });
    }
};

// The types are equal, or one of them is f32. Adds in f32; in f64 if one of them is f64.
struct Add {
    using Parameters = gpu_kernel::Slabs;
    using Shared = Nothing;
    static constexpr int phases = 1;

    template <typename To, typename From>
    VESCOMM_INLINE void add(const Parameters &p, unsigned block, unsigned thread) {
        combine_tile<typename To::Storage, typename From::Storage>(
            p, block, thread, [](typename To::Storage y, typename From::Storage x) {
                return To::narrow(To::widen(y) + From::widen(x));
            });
    }
    VESCOMM_INLINE void run(int, const Parameters &p, Shared &, unsigned block, unsigned thread) {
        if (p.source_type == p.target_type)
            return with_float(p.target_type,
                              [&](auto to) { add<decltype(to), decltype(to)>(p, block, thread); });
        if (p.source_type == VESCOMM_F32)
            return with_float(p.target_type,
                              [&](auto to) { add<decltype(to), F32>(p, block, thread); });
        with_float(p.source_type, [&](auto from) { add<F32, decltype(from)>(p, block, thread); });
    }
};

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
