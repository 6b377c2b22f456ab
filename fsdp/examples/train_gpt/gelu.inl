// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// gelu(x) = x Φ(x) by its tanh approximation, which needs one sigmoid:
//
//     x (1 + tanh z) / 2 = x s,   s = 1 / (1 + e^-2z),   z = √(2/π) (x + 0.044715 x³)
//
// Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415, section 2.

constexpr float gelu_slope = -1.5957691216f;  // -2 √(2/π)
constexpr float gelu_cubic = 0.044715f;

inline Floats gelu_sigmoid(Floats x, Floats square) {
    return 1.f / (1.f + exponential(gelu_slope * x * (1.f + gelu_cubic * square)));
}

inline Floats gelu_of(Floats x) {
    return x * gelu_sigmoid(x, x * x);
}

struct GeluGradient {
    Floats dx;
    Floats y;
};

inline GeluGradient gelu_gradient(Floats x, Floats dy) {
    const Floats square = x * x;
    const Floats s = gelu_sigmoid(x, square);
    const Floats y = x * s;
    const Floats slope = -gelu_slope * (1.f + 3 * gelu_cubic * square);
    return {dy * (s + y * (1.f - s) * slope), y};
}

template <typename Element>
void gelu(std::size_t count, const Element *x, Element *y) {
    std::size_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        const Pair in = load_pair(x + i);
        store_pair(y + i, {gelu_of(in.even), gelu_of(in.odd)});
    }
    for (; i < count; i += lanes) store(y + i, gelu_of(load(x + i, count - i)), count - i);
}

template <typename Element>
void gelu_backward(std::size_t count, const Element *x, const Element *dy, Element *dx,
                   Element *y) {
    std::size_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        const Pair in = load_pair(x + i);
        const Pair dout = load_pair(dy + i);
        const GeluGradient even = gelu_gradient(in.even, dout.even);
        const GeluGradient odd = gelu_gradient(in.odd, dout.odd);
        store_pair(dx + i, {even.dx, odd.dx});
        store_pair(y + i, {even.y, odd.y});
    }
    for (; i < count; i += lanes) {
        const std::size_t left = count - i;
        const GeluGradient gradient = gelu_gradient(load(x + i, left), load(dy + i, left));
        store(dx + i, gradient.dx, left);
        store(y + i, gradient.y, left);
    }
}
