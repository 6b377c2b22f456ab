// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The kernels of the table for GPUs. -fmad=false, as the bodies demand.
#include "gpu/kernels/bodies.h"

namespace {

using namespace vescomm::internal;
using namespace vescomm::internal::VESCOMM_ISA;

template <typename Body>
__device__ __forceinline__ void run_body(const typename Body::Parameters &parameters) {
    __shared__ typename Body::Shared shared;
#pragma unroll
    for (int phase = 0; phase < Body::phases; ++phase) {
        if (phase > 0) __syncthreads();
        Body::run(phase, parameters, shared, blockIdx.x, threadIdx.x);
    }
}

// Blocks of a body that a multiprocessor runs at a time, at least: the compiler gives their threads
// registers for that.
template <typename Body>
constexpr int min_blocks() {
    if constexpr (requires { Body::min_blocks; }) return Body::min_blocks;
    else return 1;
}

}  // namespace

#define VESCOMM_KERNEL(name, Body)                                                             \
    extern "C" __global__ void __launch_bounds__(gpu_kernel::threads, min_blocks<Body>())     \
        VESCOMM_GPU_KERNEL(name)(const __grid_constant__ Body::Parameters parameters) {       \
        run_body<Body>(parameters);                                                            \
    }
VESCOMM_GPU_KERNELS(VESCOMM_KERNEL)
