// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// One matrix product C = A B, created once with oneDNN and executed on different addresses.
//
// Zones: the constructor is set-up (oneDNN generates code, milliseconds); the call is per operation
// and does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>

#include "fsdp/examples/train_gpt/bfloat16.h"
#include "fsdp/examples/train_gpt/float16.h"

namespace train_gpt {

// Makes oneDNN compute on the calling thread only, because there is one rank per core. The setting
// of OpenMP is per thread, so every entry point of this example calls it again; a call costs
// nanoseconds.
void use_one_thread();

// Scratch memory shared by the products of one model, which run one after another.
class Workspace {
public:
    Workspace();

    const dnnl::engine &engine() const { return engine_; }
    const dnnl::stream &stream() const { return stream_; }
    std::size_t bytes() const { return bytes_; }

    // Grows the memory to at least `bytes`. Called while products are created; data() may change.
    void reserve(std::size_t bytes);
    void *data() const { return data_.get(); }

private:
    struct Free {
        void operator()(void *block) const;
    };

    dnnl::engine engine_;
    dnnl::stream stream_;
    std::size_t bytes_ = 0;
    std::unique_ptr<void, Free> data_;
};

// The type and the strides, in elements, of an operand.
struct Operand {
    dnnl::memory::data_type type;
    std::int64_t row_stride;
    std::int64_t column_stride;
    std::int64_t batch_stride = 0;
};

template <typename Element>
constexpr dnnl::memory::data_type data_type = dnnl::memory::data_type::undef;
template <>
inline constexpr dnnl::memory::data_type data_type<float> = dnnl::memory::data_type::f32;
template <>
inline constexpr dnnl::memory::data_type data_type<bfloat16> = dnnl::memory::data_type::bf16;
template <>
inline constexpr dnnl::memory::data_type data_type<float16> = dnnl::memory::data_type::f16;

struct Product {
    // 0: plain matrices, for which oneDNN 2.6 uses its batch-reduce kernels. 1 or more: a batch of
    // that many products at batch_stride, for which it uses its older kernels. The faster kind
    // depends on the operands; see linear.cc.
    std::int64_t batch = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t depth = 0;
    Operand a;  // rows × depth
    Operand b;  // depth × columns
    Operand c;  // rows × columns; its column stride is 1
    bool bias = false;  // adds a vector of columns, of the type of B, to every row
    bool add = false;  // C += A B
};

class Widened;

class Matmul {
public:
    Matmul(Workspace &workspace, const Product &product);
    ~Matmul();
    Matmul(Matmul &&) noexcept;
    Matmul &operator=(Matmul &&) noexcept;

    void operator()(const void *a, const void *b, void *c, const void *bias = nullptr);

private:
    void make(const Product &product);

    Workspace *workspace_;
    std::unique_ptr<Widened> widened_;  // set if oneDNN has no product of these types
    dnnl::memory a_;
    dnnl::memory b_;
    dnnl::memory c_;
    dnnl::memory bias_;
    dnnl::memory scratch_;
    dnnl::matmul primitive_;
};

}  // namespace train_gpt
