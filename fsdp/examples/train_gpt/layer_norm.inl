// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// y = x̂ w + b,  x̂ = (x - mean) / √(variance + ε), for every row.
//
// Source: Ba, Kiros and Hinton, "Layer Normalization", arXiv:1607.06450.

template <typename Element>
void layer_norm(std::size_t rows, std::size_t columns, const float *x, const Element *weight,
                const Element *bias, Element *y, float *mean, float *reciprocal) {
    const float count = static_cast<float>(columns);
    for (std::size_t row = 0; row < rows; ++row, x += columns, y += columns) {
        Floats sum = {};
        for (std::size_t i = 0; i < columns; i += lanes) sum += load(x + i, columns - i);
        const float center = fold<Sum>(sum) / count;

        // Sum the squared differences: E(x²) - mean² would cancel.
        Floats squares = {};
        for (std::size_t i = 0; i < columns; i += lanes) {
            const Floats difference =
                first_lanes(load(x + i, columns - i) - center, columns - i, 0.f);
            squares += difference * difference;
        }
        const float scale = 1.f / __builtin_sqrtf(fold<Sum>(squares) / count + 1e-5f);

        for (std::size_t i = 0; i < columns; i += lanes) {
            const std::size_t left = columns - i;
            const Floats normal = (load(x + i, left) - center) * scale;
            store(y + i, normal * load(weight + i, left) + load(bias + i, left), left);
        }
        mean[row] = center;
        reciprocal[row] = scale;
    }
}

// With g = dy w:  dx = (g - mean(g) - x̂ mean(g x̂)) / √(variance + ε).
template <typename Element>
void layer_norm_backward(std::size_t rows, std::size_t columns, const float *x, const float *mean,
                         const float *reciprocal, const Element *weight, const Element *dy,
                         float *dx, Element *rounded, float *dweight, float *dbias) {
    __builtin_memset(dweight, 0, columns * sizeof(float));
    __builtin_memset(dbias, 0, columns * sizeof(float));
    const float count = static_cast<float>(columns);
    for (std::size_t row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
        const float center = mean[row];
        const float scale = reciprocal[row];
        Floats g_sum = {};
        Floats product_sum = {};
        for (std::size_t i = 0; i < columns; i += lanes) {
            const std::size_t left = columns - i;
            const Floats out = load(dy + i, left);
            const Floats normal = (load(x + i, left) - center) * scale;
            const Floats g = out * load(weight + i, left);
            g_sum += g;
            product_sum += g * normal;
            store(dweight + i, load(dweight + i, left) + out * normal, left);
            store(dbias + i, load(dbias + i, left) + out, left);
        }
        const float g_mean = fold<Sum>(g_sum) / count;
        const float product_mean = fold<Sum>(product_sum) / count;

        for (std::size_t i = 0; i < columns; i += lanes) {
            const std::size_t left = columns - i;
            const Floats normal = (load(x + i, left) - center) * scale;
            const Floats g = load(dy + i, left) * load(weight + i, left);
            const Floats sum = load(dx + i, left) + (g - g_mean - normal * product_mean) * scale;
            store(dx + i, sum, left);
            if (rounded != nullptr) store(rounded + row * columns + i, sum, left);
        }
    }
}
