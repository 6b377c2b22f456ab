// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Vectors of float16, converted with whole-number operations, which every processor has. All f16
// values are converted, subnormal ones too.

// Moves exponent and fraction to their places in f32, and multiplies by 2^112, the difference of
// the exponents' biases: exact, and subnormal numbers become normal. Infinities and NaNs need the
// largest exponent.
inline Floats widened_halves(Words halves) {
    const Words sign = (halves & 0x8000) << 16;
    const Words magnitude = (halves & 0x7fff) << 13;
    const Floats finite = bits_as<Floats>(magnitude) * 5.192296858534828e33f;
    const Words special = magnitude | 0x7f800000;
    const Words bits = magnitude >= 0x0f800000 ? special : bits_as<Words>(finite);
    return bits_as<Floats>(bits | sign);
}

// Rounds to nearest, ties to even; the result is in the lower half. A NaN becomes a quiet NaN.
// Source: F. Giesen, "float_to_half_fast3_rtne", 2016.
inline Words rounded_to_halves(Floats values) {
    const Words all = bits_as<Words>(values);
    const Words sign = (all & 0x80000000) >> 16;
    const Words bits = all & 0x7fffffff;
    // From 2^16 on a value is infinite; from 65520 on, the sum below carries to infinity.
    const Words special = bits > 0x7f800000 ? Words{} + 0x7e00 : Words{} + 0x7c00;
    // Below 2^-14: the sum with 0.5 has the rounded value in the lowest bits of its fraction.
    const Words small = bits_as<Words>(bits_as<Floats>(bits) + broadcast(0.5f)) - 0x3f000000;
    const Words normal = (bits - 0x38000000 + 0xfff + ((bits >> 13) & 1)) >> 13;
    const Words finite = bits < 0x38800000 ? small : normal;
    return (bits >= 0x47800000 ? special : finite) | sign;
}

inline Floats load(const float16 *from) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    return widened_halves(__builtin_convertvector(halves, Words));
}

inline void store(float16 *to, Floats values) {
    const Halves halves = __builtin_convertvector(rounded_to_halves(values), Halves);
    __builtin_memcpy(to, &halves, sizeof halves);
}

inline Pair load_pair(const float16 *from) {
    Words words;
    __builtin_memcpy(&words, from, sizeof words);
    return {widened_halves(words & 0xffff), widened_halves(words >> 16)};
}

inline void store_pair(float16 *to, Pair values) {
    const Words words = rounded_to_halves(values.even) | (rounded_to_halves(values.odd) << 16);
    __builtin_memcpy(to, &words, sizeof words);
}
