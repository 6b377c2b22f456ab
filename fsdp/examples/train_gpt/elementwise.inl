// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Sums and roundings.

template <typename Element>
void add(std::size_t count, const float *x, const Element *delta, float *sum) {
    for (std::size_t i = 0; i < count; i += lanes) {
        const std::size_t left = count - i;
        store(sum + i, load(x + i, left) + load(delta + i, left), left);
    }
}

template <typename Element>
void write(std::size_t count, const float *values, Element *out, bool accumulate) {
    for (std::size_t i = 0; i < count; i += lanes) {
        const std::size_t left = count - i;
        Floats value = load(values + i, left);
        if (accumulate) value += load(out + i, left);
        store(out + i, value, left);
    }
}

template <typename Element>
void read(std::size_t count, const Element *values, float *out) {
    for (std::size_t i = 0; i < count; i += lanes) {
        const std::size_t left = count - i;
        store(out + i, load(values + i, left), left);
    }
}

// Adds four rows at a time, so that the sums, which are in L1, are loaded and stored once for four
// rows.
template <typename Element>
void column_sums(std::size_t rows, std::size_t columns, const Element *matrix, float *sums) {
    __builtin_memset(sums, 0, columns * sizeof(float));
    std::size_t row = 0;
    for (; row + 4 <= rows; row += 4) {
        const Element *a = matrix + row * columns;
        const Element *b = a + columns;
        const Element *c = b + columns;
        const Element *d = c + columns;
        for (std::size_t i = 0; i < columns; i += lanes) {
            const std::size_t left = columns - i;
            const Floats four =
                (load(a + i, left) + load(b + i, left)) + (load(c + i, left) + load(d + i, left));
            store(sums + i, load(sums + i, left) + four, left);
        }
    }
    for (; row < rows; ++row) add(columns, sums, matrix + row * columns, sums);
}

template <typename Element>
void row_dots(std::size_t rows, std::size_t columns, std::size_t stride, const Element *a,
              const Element *b, float *dots) {
    for (std::size_t row = 0; row < rows; ++row) {
        const Element *x = a + row * stride;
        const Element *y = b + row * stride;
        Floats sum = {};
        for (std::size_t i = 0; i < columns; i += lanes) {
            sum += load(x + i, columns - i) * load(y + i, columns - i);
        }
        dots[row] = fold<Sum>(sum);
    }
}
