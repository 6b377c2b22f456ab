// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "gpu/cuda_functions.h"
#include "gpu/gpu_libraries.h"
#include "gpu/kernel_image.h"
#include "gpu/kernels/table.h"

namespace vescomm::internal {

#define VESCOMM_ENUMERATOR(name, Body) name,
enum class Kernel { VESCOMM_GPU_KERNELS(VESCOMM_ENUMERATOR) count };
#undef VESCOMM_ENUMERATOR

// The kernels of the table, loaded by the CUDA runtime for all devices. Never unloaded, unless the
// constructor throws: at the end of the process CUDA may have ended before.
//
// Threads: safe.
class KernelLibrary {
public:
    // Throws UNSUPPORTED if the kernels of `support` are not usable, or not of this version.
    explicit KernelLibrary(const GpuSupport &support);

    // Puts a kernel on a stream: `blocks` blocks, and a copy of its parameters. Throws SYSTEM.
    void launch(Kernel kernel, std::int64_t blocks, const void *parameters,
                cuda::Stream stream) const;
    // Loads all kernels on the current device, which their first launch would do otherwise. Throws
    // UNSUPPORTED if they do not suit the device.
    void preload() const;

private:
    std::string reason(cuda::Error error) const;

    const cuda::Runtime runtime_;
    const cuda::KernelFunctions functions_;
    const KernelImage image_;
    std::array<cuda::Kernel, static_cast<std::size_t>(Kernel::count)> kernels_{};
};

// Returns the kernels; loads them at the first call. Throws UNSUPPORTED; the next call then tries
// again. Threads: safe.
const KernelLibrary &kernel_library();

}  // namespace vescomm::internal
