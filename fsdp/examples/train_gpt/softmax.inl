// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The softmax of causal attention. The matrix product also computes scores right of a row's own
// key. They are not read, and their probabilities are written as zeros for the next product.

template <typename Element>
void causal_softmax(std::size_t rows, std::size_t first, std::size_t width, std::size_t stride,
                    float scale, const float *scores, Element *probabilities, float *log_sum) {
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t count = first + row + 1;
        const float *score = scores + row * stride;
        Element *probability = probabilities + row * stride;

        Floats largest = broadcast(score[0]);
        for (std::size_t i = 0; i < count; i += lanes) {
            largest = larger(largest, first_lanes(load(score + i, width - i), count - i, score[0]));
        }
        const float shift = fold<Largest>(largest) * scale;

        Floats sums = {};
        for (std::size_t i = 0; i < count; i += lanes) {
            const Floats power = exponential(load(score + i, width - i) * scale - shift);
            sums += first_lanes(power, count - i, 0.f);
        }
        const float sum = fold<Sum>(sums);
        log_sum[row] = shift + __builtin_logf(sum);

        const float share = 1.f / sum;
        std::size_t i = 0;
        for (; i < count; i += lanes) {
            const Floats power = exponential(load(score + i, width - i) * scale - shift);
            store(probability + i, first_lanes(power * share, count - i, 0.f), width - i);
        }
        for (; i < width; i += lanes) store(probability + i, Floats{}, width - i);
    }
}

template <typename Element>
void causal_softmax_backward(std::size_t rows, std::size_t first, std::size_t width,
                             std::size_t stride, float scale, const float *scores,
                             const float *dprobabilities, const float *log_sum, const float *dots,
                             Element *probabilities, Element *dscores) {
    for (std::size_t row = 0; row < rows; ++row) {
        const std::size_t count = first + row + 1;
        const float *score = scores + row * stride;
        const float *dprobability = dprobabilities + row * stride;
        Element *probability = probabilities + row * stride;
        Element *dscore = dscores + row * stride;
        const float shift = log_sum[row];
        const float dot = dots[row];

        std::size_t i = 0;
        for (; i < count; i += lanes) {
            const std::size_t left = width - i;
            const Floats p =
                first_lanes(exponential(load(score + i, left) * scale - shift), count - i, 0.f);
            const Floats d =
                first_lanes(p * (load(dprobability + i, left) - dot) * scale, count - i, 0.f);
            store(probability + i, p, left);
            store(dscore + i, d, left);
        }
        for (; i < width; i += lanes) {
            store(probability + i, Floats{}, width - i);
            store(dscore + i, Floats{}, width - i);
        }
    }
}
