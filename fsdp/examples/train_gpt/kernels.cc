// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

#include "fsdp/examples/train_gpt/kernels.h"

#include <iterator>

#include "execute/isa.h"

namespace train_gpt {

namespace baseline {
extern const KernelSet kernel_set;
}

#if defined(__x86_64__)
namespace x86_64_v3 {
extern const KernelSet kernel_set;
}
namespace x86_64_v4 {
extern const KernelSet kernel_set;
}
#endif

namespace {

// In the order of isa_names.
constexpr const KernelSet *table[] = {
    &baseline::kernel_set,
#if defined(__x86_64__)
    &x86_64_v3::kernel_set,
    &x86_64_v4::kernel_set,
#endif
};
static_assert(std::size(table) == std::size(vescomm::internal::isa_names));

}  // namespace

std::span<const KernelSet *const> supported_kernels() {
    static const int supported = vescomm::internal::supported_isas();
    return std::span(table).first(supported);
}

template <>
const Kernels<float> &kernels() {
    return supported_kernels().back()->f32;
}

template <>
const Kernels<bfloat16> &kernels() {
    return supported_kernels().back()->bf16;
}

template <>
const Kernels<float16> &kernels() {
    return supported_kernels().back()->f16;
}

}  // namespace train_gpt
