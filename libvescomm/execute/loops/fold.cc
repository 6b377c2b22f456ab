// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loops that fold accumulators: f32, f64, integers, bool and complex numbers, with every
// operator of the type. Zone: per byte.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "execute/loops/elements.h"
#include "execute/loops/loops.h"
#include "execute/loops/operators.h"

namespace vescomm::internal::VESCOMM_ISA {
namespace {

// Most sources in one call. Only for sums of floats are more loops worth the code size; bitwise and
// logical operators are rare.
template <typename T, typename Op, bool weighted>
constexpr int max = std::is_base_of_v<Bitwise, Op>                                       ? 4
                    : std::is_floating_point_v<T> &&std::is_same_v<Op, Sum> && !weighted ? 16
                                                                                         : 8;

// A factor for integers: rounds towards zero, saturates to an i64.
VESCOMM_INLINE std::int64_t whole(double x) {
    if (!(x > -0x1p63)) return x == x ? INT64_MIN : 0;
    return x < 0x1p63 ? static_cast<std::int64_t>(x) : INT64_MAX;
}

// A source and its factor.
template <typename T>
struct Operand {
    const T *at;
    T factor;
};

// ((s0 + s1) + ...) + s[k]
template <typename Op, bool weighted, int k, typename T>
VESCOMM_INLINE T folded(const Operand<T> *s, std::size_t i) {
    T x = s[k].at[i];
    if constexpr (weighted) x = Product::apply(s[k].factor, x);
    if constexpr (is_logical<Op>) x = static_cast<T>(x != 0);
    if constexpr (k == 0) return x;
    else return Op::apply(folded<Op, weighted, k - 1>(s, i), x);
}

template <typename T>
VESCOMM_INLINE T factor_of(double factor) {
    if constexpr (std::is_floating_point_v<T>) return static_cast<T>(factor);
    else return static_cast<T>(whole(factor));
}

// Folds n operands. `start`, if there is one, is the first of them.
template <typename T, typename Op, bool weighted, int n>
VESCOMM_INLINE void fold_exactly(const FoldArguments &a) {
    const int started = a.start != nullptr;
    Operand<T> s[n];
    for (int k = 0; k < n; ++k) {
        const bool is_start = k == 0 && started;
        s[k].at = is_start ? static_cast<const T *>(a.start)
                           : static_cast<const T *>(a.sources[k - started]) + a.first;
        if constexpr (weighted)
            s[k].factor = is_start ? T{1} : factor_of<T>(a.factors[k - started]);
    }
    const auto to = static_cast<T *>(a.to);
    const auto scale = static_cast<T>(a.scale);
    const std::size_t count = a.count;
    VESCOMM_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
        T x = folded<Op, weighted, n - 1>(s, i);
        if constexpr (std::is_floating_point_v<T> && std::is_same_v<Op, Sum>) x = scale * x;
        if constexpr (std::is_floating_point_v<T>) x = canonical(x);
        to[i] = x;
    }
}

// Instantiates a loop for each number of operands.
template <typename T, typename Op, bool weighted, int n = max<T, Op, weighted> + 1>
VESCOMM_INLINE void fold_any(int operands, const FoldArguments &a) {
    if (operands == n) fold_exactly<T, Op, weighted, n>(a);
    else if constexpr (n > 1) fold_any<T, Op, weighted, n - 1>(operands, a);
}

template <typename T, typename Op, bool weighted>
void fold(const FoldArguments &a) noexcept {
    fold_any<T, Op, weighted>(a.n + (a.start != nullptr), a);
}

// Signed integers share the loops of unsigned ones if the sign makes no difference.
template <typename T, typename Op>
struct Shared {
    using Type = T;
};
template <typename T, typename Op>
requires(std::is_integral_v<T> && !Op::ordered) struct Shared<T, Op> {
    using Type = std::make_unsigned_t<T>;
};

template <typename T, typename Op, bool weighted>
FoldLoop loop() {
    using Type = typename Shared<T, Op>::Type;
    return {&fold<Type, Op, weighted>, max<Type, Op, weighted>};
}

template <typename Op, bool weighted = false>
FoldLoop loop_of_integers(vescomm_type_t type) {
    switch (type) {
        case VESCOMM_I8:
            return loop<std::int8_t, Op, weighted>();
        case VESCOMM_U8:
            return loop<std::uint8_t, Op, weighted>();
        case VESCOMM_I16:
            return loop<std::int16_t, Op, weighted>();
        case VESCOMM_U16:
            return loop<std::uint16_t, Op, weighted>();
        case VESCOMM_I32:
            return loop<std::int32_t, Op, weighted>();
        case VESCOMM_U32:
            return loop<std::uint32_t, Op, weighted>();
        case VESCOMM_I64:
            return loop<std::int64_t, Op, weighted>();
        case VESCOMM_U64:
            return loop<std::uint64_t, Op, weighted>();
        default:
            return {};
    }
}

template <typename Op, bool weighted = false>
FoldLoop loop_of(vescomm_type_t type) {
    switch (type) {
        case VESCOMM_F32:
            return loop<float, Op, weighted>();
        case VESCOMM_F64:
            return loop<double, Op, weighted>();
        default:
            return loop_of_integers<Op, weighted>(type);
    }
}

// Sums of complex numbers are sums of their parts.
template <typename T, bool weighted>
void fold_parts(const FoldArguments &a) noexcept {
    FoldArguments parts = a;
    parts.first *= 2;
    parts.count *= 2;
    fold<T, Sum, weighted>(parts);
}

// Products of n complex numbers. `start`, if there is one, is the first of them.
template <typename T, int n>
VESCOMM_INLINE void multiply_exactly(const FoldArguments &a) {
    const int started = a.start != nullptr;
    const T *s[n];
    for (int k = 0; k < n; ++k)
        s[k] = k == 0 && started ? static_cast<const T *>(a.start)
                                 : static_cast<const T *>(a.sources[k - started]) + 2 * a.first;
    // Unknown to the compiler: GCC 12 fuses the products into a difference beside a sum
    // (vfmaddsub), which rounds once, in spite of -ffp-contract=off. It does not fuse two sums.
    const volatile T hidden = -1;
    const T minus_one = hidden;
    const auto to = static_cast<T *>(a.to);
    const std::size_t count = a.count;
    VESCOMM_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
        T real = s[0][2 * i], imaginary = s[0][2 * i + 1];
        for (int k = 1; k < n; ++k) {
            const T x = s[k][2 * i], y = s[k][2 * i + 1];
            const T product = real * x + minus_one * (imaginary * y);
            imaginary = real * y + imaginary * x;
            real = product;
        }
        to[2 * i] = canonical(real);
        to[2 * i + 1] = canonical(imaginary);
    }
}

constexpr int max_complex_factors = 4;

template <typename T, int n = max_complex_factors + 1>
VESCOMM_INLINE void multiply_any(int operands, const FoldArguments &a) {
    if (operands == n) multiply_exactly<T, n>(a);
    else if constexpr (n > 1) multiply_any<T, n - 1>(operands, a);
}

template <typename T>
void multiply(const FoldArguments &a) noexcept {
    multiply_any<T>(a.n + (a.start != nullptr), a);
}

template <typename T>
FoldLoop loop_of_complex(vescomm_op_t op) {
    switch (op) {
        case VESCOMM_SUM:
        case VESCOMM_AVERAGE:
            return {&fold_parts<T, false>, max<T, Sum, false>};
        case VESCOMM_PREMULTIPLIED_SUM:
            return {&fold_parts<T, true>, max<T, Sum, true>};
        case VESCOMM_PROD:
            return {&multiply<T>, max_complex_factors};
        default:
            return {};
    }
}

// The loops of truth values, 1 and 0, are those of bytes.
FoldLoop loop_of_bool(vescomm_op_t op) {
    switch (op) {
        case VESCOMM_SUM:
        case VESCOMM_MAX:
        case VESCOMM_BITWISE_OR:
        case VESCOMM_LOGICAL_OR:
            return loop<std::uint8_t, Logical<Or>, false>();
        case VESCOMM_PROD:
        case VESCOMM_MIN:
        case VESCOMM_BITWISE_AND:
        case VESCOMM_LOGICAL_AND:
            return loop<std::uint8_t, Logical<And>, false>();
        case VESCOMM_BITWISE_XOR:
        case VESCOMM_LOGICAL_XOR:
            return loop<std::uint8_t, Logical<Xor>, false>();
        default:
            return {};
    }
}

}  // namespace

FoldLoop find_fold(vescomm_op_t op, vescomm_type_t to, vescomm_type_t from) noexcept {
    const bool is_sum = op == VESCOMM_SUM || op == VESCOMM_AVERAGE;
    if (is_sum && (to != from || from == VESCOMM_BF16)) return find_bf16_sum(to, from);
    if (to != from) return {};
    if (from == VESCOMM_BOOL) return loop_of_bool(op);
    if (from == VESCOMM_C64) return loop_of_complex<float>(op);
    if (from == VESCOMM_C128) return loop_of_complex<double>(op);
    switch (op) {
        case VESCOMM_SUM:
        case VESCOMM_AVERAGE:
            return loop_of<Sum>(from);
        case VESCOMM_PROD:
            return loop_of<Product>(from);
        case VESCOMM_MIN:
            return loop_of<Minimum>(from);
        case VESCOMM_MAX:
            return loop_of<Maximum>(from);
        case VESCOMM_PREMULTIPLIED_SUM:
            return loop_of<Sum, true>(from);
        case VESCOMM_BITWISE_AND:
            return loop_of_integers<And>(from);
        case VESCOMM_BITWISE_OR:
            return loop_of_integers<Or>(from);
        case VESCOMM_BITWISE_XOR:
            return loop_of_integers<Xor>(from);
        case VESCOMM_LOGICAL_AND:
            return loop_of_integers<Logical<And>>(from);
        case VESCOMM_LOGICAL_OR:
            return loop_of_integers<Logical<Or>>(from);
        case VESCOMM_LOGICAL_XOR:
            return loop_of_integers<Logical<Xor>>(from);
        default:
            return {};
    }
}

}  // namespace vescomm::internal::VESCOMM_ISA
