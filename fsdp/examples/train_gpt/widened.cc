// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_gpt/widened.h"

#include <algorithm>
#include <bit>

#include "fsdp/examples/train_gpt/kernels.h"

namespace train_gpt {

namespace {

constexpr auto bf16 = dnnl::memory::data_type::bf16;

std::int64_t batches(const Product &product) {
    return std::max<std::int64_t>(product.batch, 1);
}

Operand dense(const Operand &operand, std::int64_t rows, std::int64_t columns) {
    if (operand.type != bf16) return operand;
    return {dnnl::memory::data_type::f32, columns, 1, rows * columns};
}

void widen(const Operand &operand, std::int64_t batch, std::int64_t rows, std::int64_t columns,
           const void *from, float *to) {
    const auto *bits = static_cast<const std::uint16_t *>(from);
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::uint16_t *row = bits + b * operand.batch_stride + r * operand.row_stride;
            for (std::int64_t c = 0; c < columns; ++c)
                *to++ = std::bit_cast<float>(std::uint32_t{row[c * operand.column_stride]} << 16);
        }
}

}  // namespace

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
    a_ = take(product.a.type == bf16, batch * product.rows * product.depth);
    b_ = take(product.b.type == bf16, batch * product.depth * product.columns);
    c_ = take(product.c.type == bf16, batch * product.rows * product.columns);
    bias_ = take(product.bias && product.b.type == bf16, product.columns);
}

void Widened::before(std::byte *workspace, const void *&a, const void *&b, void *&c,
                     const void *&bias) {
    const Product &p = product_;
    const std::int64_t batch = batches(p);
    const auto at = [workspace](std::size_t offset) {
        return reinterpret_cast<float *>(workspace + offset);
    };
    if (p.a.type == bf16) {
        widen(p.a, batch, p.rows, p.depth, a, at(a_));
        a = at(a_);
    }
    if (p.b.type == bf16) {
        widen(p.b, batch, p.depth, p.columns, b, at(b_));
        b = at(b_);
        if (bias != nullptr) {
            widen({bf16, p.columns, 1}, 1, 1, p.columns, bias, at(bias_));
            bias = at(bias_);
        }
    }
    if (p.c.type == bf16) {
        if (p.add) widen(p.c, batch, p.rows, p.columns, c, at(c_));
        c = at(c_);
    }
}

void Widened::after(const std::byte *workspace, void *c) const {
    const Product &p = product_;
    if (p.c.type != bf16) return;
    const auto *values = reinterpret_cast<const float *>(workspace + c_);
    const auto columns = static_cast<std::size_t>(p.columns);
    auto *out = static_cast<bfloat16 *>(c);
    for (std::int64_t b = 0; b < batches(p); ++b)
        for (std::int64_t r = 0; r < p.rows; ++r, values += columns)
            kernels<bfloat16>().write(columns, values,
                                      out + b * p.c.batch_stride + r * p.c.row_stride, false);
}

}  // namespace train_gpt
