// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Softmax and negative log likelihood of one byte per row.

double cross_entropy(std::size_t rows, std::size_t columns, const float *logits,
                     const std::uint8_t *targets, float *log_sum) {
    double loss = 0;
    for (std::size_t row = 0; row < rows; ++row, logits += columns) {
        Floats largest = broadcast(logits[0]);
        for (std::size_t i = 0; i < columns; i += lanes) {
            largest =
                larger(largest, first_lanes(load(logits + i, columns - i), columns - i, logits[0]));
        }
        const float shift = fold<Largest>(largest);

        Floats sum = {};
        for (std::size_t i = 0; i < columns; i += lanes) {
            const Floats power = exponential(load(logits + i, columns - i) - shift);
            sum += first_lanes(power, columns - i, 0.f);
        }
        log_sum[row] = shift + __builtin_logf(fold<Sum>(sum));
        loss += static_cast<double>(log_sum[row]) - static_cast<double>(logits[targets[row]]);
    }
    return loss;
}

template <typename Element>
void cross_entropy_backward(std::size_t rows, std::size_t columns, float scale, const float *logits,
                            const std::uint8_t *targets, const float *log_sum, Element *dlogits) {
    for (std::size_t row = 0; row < rows; ++row, logits += columns, dlogits += columns) {
        for (std::size_t i = 0; i < columns; i += lanes) {
            const std::size_t left = columns - i;
            Floats share = exponential(load(logits + i, left) - log_sum[row]);
            // Subtract before rounding: in bf16, 1 - p of a confident model would be lost.
            const std::size_t target = targets[row];
            if (target >= i && target < i + lanes) share[target - i] -= 1.f;
            store(dlogits + i, share * scale, left);
        }
    }
}
