// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A matrix product of bf16 operands on processors for which oneDNN has none: it needs AVX-512 (or
// more) for bf16. The operands are converted to f32 first, and the result is rounded afterwards.
#pragma once

#include "fsdp/examples/train_gpt/matmul.h"

namespace train_gpt {

// Copies of operands in f32, in the workspace behind the scratch memory of oneDNN. Operands that
// are f32 already are used where they lie.
class Widened {
public:
    // `scratch_bytes`: of the workspace, that the product in f32 takes.
    Widened(const Product &product, std::size_t scratch_bytes);

    // The same product with all operands in f32.
    static Product in_f32(const Product &product);

    std::size_t workspace_bytes() const { return end_; }

    // Converts what is bf16, and replaces its address by that of the copy.
    void before(std::byte *workspace, const void *&a, const void *&b, void *&c, const void *&bias);
    // Rounds the result to where it belongs; `c` as the caller gave it.
    void after(const std::byte *workspace, void *c) const;

private:
    Product product_;
    std::size_t a_ = 0, b_ = 0, c_ = 0, bias_ = 0, end_ = 0;  // offsets in the workspace
};

}  // namespace train_gpt
