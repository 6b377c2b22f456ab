// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_gpt/widened.h"

#include <algorithm>

#include "fsdp/examples/train_gpt/kernels.h"

namespace train_gpt {

namespace {

constexpr auto f16 = dnnl::memory::data_type::f16;

std::int64_t batches(const Product &product) {
    return std::max<std::int64_t>(product.batch, 1);
}

// Returns the copy of an operand: its rows, or its columns if they are consecutive, one after
// another.
Operand dense(const Operand &operand, std::int64_t rows, std::int64_t columns) {
    if (!is_narrow(operand.type)) return operand;
    const auto f32 = dnnl::memory::data_type::f32;
    if (operand.column_stride == 1) return {f32, columns, 1, rows * columns};
    return {f32, 1, rows, rows * columns};
}

template <typename Element>
void read_lines(const Operand &operand, std::int64_t batch, std::int64_t lines, std::int64_t length,
                std::int64_t line_stride, const Element *from, float *to) {
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t line = 0; line < lines; ++line, to += length)
            kernels<Element>().read(static_cast<std::size_t>(length),
                                    from + b * operand.batch_stride + line * line_stride, to);
}

// One of the strides of an operand is 1.
void widen(const Operand &operand, std::int64_t batch, std::int64_t rows, std::int64_t columns,
           const void *from, float *to) {
    const bool by_rows = operand.column_stride == 1;
    const std::int64_t lines = by_rows ? rows : columns;
    const std::int64_t length = by_rows ? columns : rows;
    const std::int64_t stride = by_rows ? operand.row_stride : operand.column_stride;
    if (operand.type == f16)
        return read_lines(operand, batch, lines, length, stride, static_cast<const float16 *>(from),
                          to);
    read_lines(operand, batch, lines, length, stride, static_cast<const bfloat16 *>(from), to);
}

template <typename Element>
void write_rows(const Product &p, const float *values, Element *out) {
    const auto columns = static_cast<std::size_t>(p.columns);
    for (std::int64_t b = 0; b < batches(p); ++b)
        for (std::int64_t r = 0; r < p.rows; ++r, values += columns)
            kernels<Element>().write(columns, values,
                                     out + b * p.c.batch_stride + r * p.c.row_stride, false);
}

}  // namespace

bool is_narrow(dnnl::memory::data_type type) {
    return type == f16 || type == dnnl::memory::data_type::bf16;
}

Product Widened::in_f32(const Product &product) {
    Product wide = product;
    wide.a = dense(product.a, product.rows, product.depth);
    wide.b = dense(product.b, product.depth, product.columns);
    wide.c = dense(product.c, product.rows, product.columns);
    return wide;
}

Widened::Widened(const Product &product, std::size_t scratch_bytes) : product_(product) {
    const std::int64_t batch = batches(product);
    end_ = scratch_bytes;
    const auto take = [this](bool needed, std::int64_t elements) {
        constexpr std::size_t alignment = 64;
        const std::size_t begin = (end_ + alignment - 1) / alignment * alignment;
        if (needed) end_ = begin + static_cast<std::size_t>(elements) * sizeof(float);
        return begin;
    };
    a_ = take(is_narrow(product.a.type), batch * product.rows * product.depth);
    b_ = take(is_narrow(product.b.type), batch * product.depth * product.columns);
    c_ = take(is_narrow(product.c.type), batch * product.rows * product.columns);
    bias_ = take(product.bias && is_narrow(product.b.type), product.columns);
}

void Widened::before(std::byte *workspace, const void *&a, const void *&b, void *&c,
                     const void *&bias) {
    const Product &p = product_;
    const std::int64_t batch = batches(p);
    const auto at = [workspace](std::size_t offset) {
        return reinterpret_cast<float *>(workspace + offset);
    };
    if (is_narrow(p.a.type)) {
        widen(p.a, batch, p.rows, p.depth, a, at(a_));
        a = at(a_);
    }
    if (is_narrow(p.b.type)) {
        widen(p.b, batch, p.depth, p.columns, b, at(b_));
        b = at(b_);
        if (bias != nullptr) {
            widen({p.b.type, p.columns, 1}, 1, 1, p.columns, bias, at(bias_));
            bias = at(bias_);
        }
    }
    if (is_narrow(p.c.type)) {
        if (p.add) widen(p.c, batch, p.rows, p.columns, c, at(c_));
        c = at(c_);
    }
}

void Widened::after(const std::byte *workspace, void *c) const {
    const Product &p = product_;
    if (!is_narrow(p.c.type)) return;
    const auto *values = reinterpret_cast<const float *>(workspace + c_);
    if (p.c.type == f16) return write_rows(p, values, static_cast<float16 *>(c));
    write_rows(p, values, static_cast<bfloat16 *>(c));
}

}  // namespace train_gpt
