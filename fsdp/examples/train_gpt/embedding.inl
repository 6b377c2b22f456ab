// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A row of the residual stream is the sum of the embeddings of its byte and of its position.

template <typename Element>
void embed(std::size_t rows, std::size_t columns, std::size_t context, const std::uint8_t *inputs,
           const Element *token, const Element *position, float *x) {
    for (std::size_t row = 0; row < rows; ++row) {
        const Element *a = token + inputs[row] * columns;
        const Element *b = position + row % context * columns;
        float *sum = x + row * columns;
        for (std::size_t i = 0; i < columns; i += lanes) {
            const std::size_t left = columns - i;
            store(sum + i, load(a + i, left) + load(b + i, left), left);
        }
    }
}

void embed_backward(std::size_t rows, std::size_t columns, std::size_t context,
                    const std::uint8_t *inputs, const float *dx, float *token, float *position) {
    for (std::size_t row = 0; row < rows; ++row) {
        float *a = token + inputs[row] * columns;
        float *b = position + row % context * columns;
        add(columns, a, dx + row * columns, a);
        add(columns, b, dx + row * columns, b);
    }
}
