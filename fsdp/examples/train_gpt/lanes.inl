// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Vectors of floats, implemented with the compilers' vector extension, which works on any
// processor.
//
// Loads and stores take the number of elements left, so that loops need no separate code for the
// remainder. Lanes beyond it read as zero and are not stored.

constexpr std::size_t lanes = TRAIN_GPT_LANES;

typedef float Floats __attribute__((vector_size(4 * TRAIN_GPT_LANES)));
typedef std::int32_t Integers __attribute__((vector_size(4 * TRAIN_GPT_LANES)));
typedef std::uint32_t Words __attribute__((vector_size(4 * TRAIN_GPT_LANES)));
typedef std::uint16_t Halves __attribute__((vector_size(2 * TRAIN_GPT_LANES)));

template <typename To, typename From>
inline To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

inline Floats broadcast(float value) {
    return value - Floats{};  // not +: -0 stays -0
}

inline Floats load(const float *from) {
    Floats values;
    __builtin_memcpy(&values, from, sizeof values);
    return values;
}

inline Floats load(const bfloat16 *from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return bits_as<Floats>(__builtin_convertvector(halves, Words) << 16);
}

inline void store(float *to, Floats values) {
    __builtin_memcpy(to, &values, sizeof values);
}

// Rounds to nearest, ties to even; the result is in the upper half. A NaN stays a NaN unless all
// bits of its fraction are set, which is never so for NaNs of bf16 or NaNs made by processors.
inline Words rounded(Floats values) {
    const Words bits = bits_as<Words>(values);
    return bits + 0x7fff + ((bits >> 16) & 1);
}

inline void store(bfloat16 *to, Floats values) {
    const Halves halves = __builtin_convertvector(rounded(values) >> 16, Halves);
    __builtin_memcpy(to, &halves, sizeof halves);
}

// Two vectors of elements, for loops that treat all elements alike. The order of elements depends
// only on the type. Adjacent bf16 elements share a word, so no packing is needed.
struct Pair {
    Floats even;
    Floats odd;
};

inline Pair load_pair(const float *from) {
    return {load(from), load(from + lanes)};
}

inline Pair load_pair(const bfloat16 *from) {
    Words words;
    __builtin_memcpy(&words, from, sizeof words);
    return {bits_as<Floats>(words << 16), bits_as<Floats>(words & 0xffff0000)};
}

inline void store_pair(float *to, Pair values) {
    store(to, values.even);
    store(to + lanes, values.odd);
}

inline void store_pair(bfloat16 *to, Pair values) {
    const Words words = (rounded(values.even) >> 16) | (rounded(values.odd) & 0xffff0000);
    __builtin_memcpy(to, &words, sizeof words);
}

#include "halves.inl"

template <typename Element>
inline Floats load(const Element *from, std::size_t left) {
    if (left >= lanes) return load(from);
    Element values[lanes] = {};
    __builtin_memcpy(values, from, left * sizeof(Element));
    return load(values);
}

template <typename Element>
inline void store(Element *to, Floats values, std::size_t left) {
    if (left >= lanes) return store(to, values);
    Element elements[lanes];
    store(elements, values);
    __builtin_memcpy(to, elements, left * sizeof(Element));
}

inline Floats smaller(Floats a, Floats b) {
    return b < a ? b : a;
}

inline Floats larger(Floats a, Floats b) {
    return b > a ? b : a;
}

// Returns `values` in the first `count` lanes and `fill` in the others.
inline Floats first_lanes(Floats values, std::size_t count, float fill) {
    if (count >= lanes) return values;
    Integers index;
    for (std::size_t lane = 0; lane < lanes; ++lane) index[lane] = static_cast<std::int32_t>(lane);
    return index < static_cast<std::int32_t>(count) ? values : broadcast(fill);
}

struct Sum {
    template <typename Vector>
    static Vector of(Vector a, Vector b) {
        return a + b;
    }
};

struct Largest {
    template <typename Vector>
    static Vector of(Vector a, Vector b) {
        return b > a ? b : a;
    }
};

// Reduces all lanes to one by halving.
template <typename Operation>
inline float fold(Floats values) {
#if TRAIN_GPT_LANES == 16
    const auto eight =
        Operation::of(__builtin_shufflevector(values, values, 0, 1, 2, 3, 4, 5, 6, 7),
                      __builtin_shufflevector(values, values, 8, 9, 10, 11, 12, 13, 14, 15));
#elif TRAIN_GPT_LANES == 8
    const auto eight = values;
#endif
#if TRAIN_GPT_LANES == 4
    const auto four = values;
#else
    const auto four = Operation::of(__builtin_shufflevector(eight, eight, 0, 1, 2, 3),
                                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7));
#endif
    const auto two = Operation::of(four, __builtin_shufflevector(four, four, 2, 3, 2, 3));
    return Operation::of(two, __builtin_shufflevector(two, two, 1, 1, 1, 1))[0];
}

// Returns eˣ with a relative error below 2e-7. x is clamped to [-87, 88], so results are at least
// 1e-38 and finite. A NaN stays a NaN.
//
// e^x = 2^n e^r, n = round(x / ln 2), |r| ≤ ln 2 / 2. Adding 1.5 · 2^23 rounds to a whole number
// and leaves it in the lowest bits. Polynomial and split of ln 2: Cephes, expf.c, S. Moshier.
inline Floats exponential(Floats x) {
    x = smaller(larger(x, broadcast(-87.f)), broadcast(88.f));
    const float round = 12582912.f;
    const Floats shifted = x * 1.44269504f + round;
    const Floats n = shifted - round;
    Floats r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    Floats p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.f;
    const Words exponent = (bits_as<Words>(shifted) + 127) << 23;
    return p * bits_as<Floats>(exponent);
}
