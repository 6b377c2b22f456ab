// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Matrix products of bf16 or f16 operands for processors on which oneDNN has none: oneDNN needs at
// least AVX-512 for bf16, and AVX512-FP16 for f16. The operands are converted to f32 before the
// product, and the result is rounded.
#pragma once

#include "fsdp/examples/train_gpt/matmul.h"

namespace train_gpt {

// Returns true for bf16 and f16.
bool is_narrow(dnnl::memory::data_type type);

// Copies of operands in f32, in the workspace after the scratch memory of oneDNN. Operands in f32
// are used in place.
class Widened {
public:
    // `scratch_bytes`: bytes of the workspace that the product in f32 uses.
    Widened(const Product &product, std::size_t scratch_bytes);

    // Returns the product with all operands in f32.
    static Product in_f32(const Product &product);

    std::size_t workspace_bytes() const { return end_; }

    // Converts narrow operands, and replaces their addresses by those of the copies.
    void before(std::byte *workspace, const void *&a, const void *&b, void *&c, const void *&bias);
    // Writes the rounded result to `c`, the caller's address.
    void after(const std::byte *workspace, void *c) const;

private:
    Product product_;
    std::size_t a_ = 0, b_ = 0, c_ = 0, bias_ = 0, end_ = 0;  // offsets in the workspace
};

}  // namespace train_gpt
