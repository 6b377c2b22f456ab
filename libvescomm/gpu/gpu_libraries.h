// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/cuda_functions.h"
#include "gpu/nccl_functions.h"

namespace vescomm::internal {

// The names by which the libraries are looked for, in this order.
struct GpuLibraryNames {
    std::vector<std::string> cuda{"libcudart.so.13", "libcudart.so.12"};
    std::vector<std::string> nccl{"libnccl.so.2"};
};

// The CUDA runtime and NCCL, both loaded and usable.
struct GpuLibraries {
    cuda::Runtime cuda;
    nccl::Library nccl;
    int nccl_version = 0;  // as NCCL counts: 22809 is 2.28.9
};

// One thing that collectives on device memory need.
struct GpuPart {
    bool usable = false;
    std::string text;  // usable: version and file; otherwise a sentence: the reason, and what to do
};

// The parts, as vescomm-info shows them, and the libraries if all parts are usable.
struct GpuSupport {
    GpuPart cuda, devices, nccl;
    GpuPart kernels;  // functions of CUDA that launch kernels, and kernels of vescomm
    std::optional<GpuLibraries> libraries;
    // If CUDA and a device are usable.
    std::optional<cuda::Runtime> runtime;
    cuda::KernelFunctions kernel_functions{};  // valid if `kernels` is usable

    // The sentence of the first part that is not usable; empty if there is none. For collectives,
    // and for kernels, which need no NCCL.
    const std::string &obstacle() const;
    const std::string &kernel_obstacle() const;
};

// Loads the libraries and examines them. A library that the process has loaded is used, so that its
// own NCCL calls and those of vescomm share one library; otherwise it is opened with local scope.
// It is never unloaded. Throws nothing but std::bad_alloc.
GpuSupport examine_gpu_support(const GpuLibraryNames &names = {});

// Returns the libraries; loads them at the first call. Throws UNSUPPORTED with the first obstacle;
// the next call then tries again. Threads: safe.
const GpuLibraries &gpu_libraries();

// The file of another NCCL of this process, whose functions the program finds first; empty if there
// is none. A communicator of the program may belong to it. A copy that is linked statically and not
// exported cannot be found.
std::string other_nccl(const nccl::Library &ours);

// "2.28.9" for 22809.
std::string nccl_version_text(int version);

}  // namespace vescomm::internal
