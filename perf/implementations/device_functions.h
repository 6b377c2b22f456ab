// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of the CUDA runtime and of NCCL that this program calls itself, from the libraries
// that vescomm has loaded. Types and constants are those of libvescomm/gpu.
#pragma once

#include <string>

#include "gpu/cuda_functions.h"
#include "gpu/nccl_functions.h"

namespace vescomm::perf {

namespace cuda = internal::cuda;
namespace nccl = internal::nccl;

struct DeviceFunctions {
    cuda::Error (*get_device_count)(int *count);
    cuda::Error (*set_device)(int device);
    cuda::Error (*stream_create)(cuda::Stream *stream, unsigned flags);
    cuda::Error (*stream_destroy)(cuda::Stream stream);
    cuda::Error (*stream_synchronize)(cuda::Stream stream);
    cuda::Error (*memcpy_async)(void *target, const void *source, std::size_t bytes, int kind,
                                cuda::Stream stream);
    const char *(*get_error_string)(cuda::Error error);
    nccl::Library nccl;
    int nccl_version = 0;  // 22809 is 2.28.9

    // Throw std::runtime_error if a call failed.
    void require(cuda::Error error, const char *call) const;
    void require_nccl(nccl::Result result, const char *call) const;
};

// Loads the libraries at the first call. Throws std::runtime_error with the reason if device memory
// cannot be used. Threads: safe.
const DeviceFunctions &device_functions();

// Returns the number of GPUs. Throws as device_functions().
int count_devices();

// Returns the reason why ranks on device memory cannot run on this machine; "" if they can.
// `threads`: ranks in each process.
std::string why_no_devices(int ranks, int threads);

// Returns the name of a GPU, such as "NVIDIA H100 80GB HBM3", or "GPU" if the driver has none.
std::string device_name(int device);

std::string nccl_version_text(int version);

}  // namespace vescomm::perf
