// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_gpt/matmul.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <new>

#include "fsdp/examples/train_gpt/widened.h"

namespace train_gpt {

void use_one_thread() {
    // oneDNN may be built with any OpenMP runtime or none. Looking up the symbol finds the runtime
    // that oneDNN uses, without linking against a second one.
    using SetNumThreads = void (*)(int);
    static const auto set_num_threads =
        reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    if (set_num_threads != nullptr) set_num_threads(1);
}

Workspace::Workspace() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

void Workspace::reserve(std::size_t bytes) {
    if (bytes <= bytes_) return;
    const std::size_t page = 4096;
    bytes_ = (bytes + page - 1) / page * page;
    data_.reset(std::aligned_alloc(page, bytes_));
    if (data_ == nullptr) throw std::bad_alloc();
}

void Workspace::Free::operator()(void *block) const {
    std::free(block);
}

namespace {

dnnl::memory::desc describe(std::int64_t batch, std::int64_t rows, std::int64_t columns,
                            const Operand &operand) {
    if (batch == 0) {
        return {{rows, columns}, operand.type, {operand.row_stride, operand.column_stride}};
    }
    return {{batch, rows, columns},
            operand.type,
            {operand.batch_stride, operand.row_stride, operand.column_stride}};
}

dnnl::memory without_data(const dnnl::memory::desc &description, const dnnl::engine &engine) {
    return {description, engine, DNNL_MEMORY_NONE};
}

}  // namespace

Matmul::Matmul(Workspace &workspace, const Product &product) : workspace_(&workspace) {
    const bool narrow = is_narrow(product.a.type) || is_narrow(product.b.type);
    try {
        make(product);
        return;
    } catch (const dnnl::error &error) {
        if (error.status != dnnl_unimplemented || !narrow) throw;
    }
    make(Widened::in_f32(product));
    widened_ = std::make_unique<Widened>(product, scratch_.get_desc().get_size());
    workspace.reserve(widened_->workspace_bytes());
}

Matmul::~Matmul() = default;
Matmul::Matmul(Matmul &&) noexcept = default;
Matmul &Matmul::operator=(Matmul &&) noexcept = default;

void Matmul::make(const Product &product) {
    Workspace &workspace = *workspace_;
    const dnnl::engine &engine = workspace.engine();
    const std::int64_t batch = product.batch;
    const auto a = describe(batch, product.rows, product.depth, product.a);
    const auto b = describe(batch, product.depth, product.columns, product.b);
    const auto c = describe(batch, product.rows, product.columns, product.c);
    dnnl::memory::desc bias;
    if (product.bias) {
        bias = describe(batch == 0 ? 0 : 1, 1, product.columns,
                        {product.b.type, product.columns, 1, product.columns});
    }

    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (product.add) {
        dnnl::post_ops add;
        add.append_sum();
        attributes.set_post_ops(add);
    }

    const dnnl::matmul::primitive_desc description({a, b, bias, c}, attributes, engine);
    primitive_ = dnnl::matmul(description);
    workspace.reserve(description.scratchpad_desc().get_size());

    a_ = without_data(a, engine);
    b_ = without_data(b, engine);
    c_ = without_data(c, engine);
    if (product.bias) bias_ = without_data(bias, engine);
    scratch_ = without_data(description.scratchpad_desc(), engine);
}

void Matmul::operator()(const void *a, const void *b, void *c, const void *bias) {
    void *const result = c;
    if (widened_) widened_->before(static_cast<std::byte *>(workspace_->data()), a, b, c, bias);
    a_.set_data_handle(const_cast<void *>(a));
    b_.set_data_handle(const_cast<void *>(b));
    c_.set_data_handle(c);
    scratch_.set_data_handle(workspace_->data());

    // Use the C function: the C++ one builds a map and a vector in every call.
    std::array<dnnl_exec_arg_t, 5> arguments = {{
        {DNNL_ARG_SRC, a_.get()},
        {DNNL_ARG_WEIGHTS, b_.get()},
        {DNNL_ARG_DST, c_.get()},
        {DNNL_ARG_SCRATCHPAD, scratch_.get()},
    }};
    int count = 4;
    if (bias != nullptr) {
        bias_.set_data_handle(const_cast<void *>(bias));
        arguments[count++] = {DNNL_ARG_BIAS, bias_.get()};
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), workspace_->stream().get(),
                                                   count, arguments.data()),
                            "a matrix product failed");
    if (widened_) widened_->after(static_cast<const std::byte *>(workspace_->data()), result);
}

}  // namespace train_gpt
