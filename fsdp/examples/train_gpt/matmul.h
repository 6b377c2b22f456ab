// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// One matrix product C = A B, made ready once by oneDNN and executed on other addresses each time.
//
// Set-up: the constructor (oneDNN generates code, milliseconds). Per operation: the call, which
// allocates nothing of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <dnnl.hpp>
#include <memory>

#include "fsdp/examples/train_gpt/bfloat16.h"

namespace train_gpt {

// Makes oneDNN compute on the calling thread. There are as many ranks as cores, and OpenMP's
// setting belongs to a thread, so that every entry into this example says it again; it costs
// nanoseconds.
void use_one_thread();

// Work space that products of one model share, since they run one after the other.
class Workspace {
public:
    Workspace();

    const dnnl::engine &engine() const { return engine_; }
    const dnnl::stream &stream() const { return stream_; }
    std::size_t bytes() const { return bytes_; }

    // The address at execution is at least this large; grows while products are being created.
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

// The elements of an operand and the distances between them, counted in elements.
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

struct Product {
    // 0: plain matrices, for which oneDNN 2.6 takes its batch-reduce kernels. 1 and more: so many
    // products at batch_stride, for which it takes its older kernels. Which is faster depends on
    // the operands; see linear.cc.
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
    std::unique_ptr<Widened> widened_;  // where oneDNN has no product of these types
    dnnl::memory a_;
    dnnl::memory b_;
    dnnl::memory c_;
    dnnl::memory bias_;
    dnnl::memory scratch_;
    dnnl::matmul primitive_;
};

}  // namespace train_gpt
