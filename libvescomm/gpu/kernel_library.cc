// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernel_library.h"

#include "base/error.h"
#include "gpu/kernels/parameters.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::internal {
namespace {

#define VESCOMM_TEXT_(symbol) #symbol
#define VESCOMM_TEXT(symbol) VESCOMM_TEXT_(symbol)
#define VESCOMM_SYMBOL(name, Body) VESCOMM_TEXT(VESCOMM_GPU_KERNEL(name)),
constexpr const char *symbols[] = {VESCOMM_GPU_KERNELS(VESCOMM_SYMBOL)};
#undef VESCOMM_SYMBOL

const cuda::Runtime &usable_runtime(const GpuSupport &support) {
    if (const std::string &obstacle = support.kernel_obstacle(); !obstacle.empty())
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "kernels on device memory are not available: " + obstacle);
    return *support.runtime;
}

}  // namespace

KernelLibrary::KernelLibrary(const GpuSupport &support)
    : runtime_(usable_runtime(support)),
      functions_(support.kernel_functions),
      image_(find_kernel_image()) {
    const RelaxedCapture relaxed(runtime_);
    cuda::Library library = nullptr;
    if (const cuda::Error error = functions_.library_load_data(
            &library, image_.bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
        error != cuda::success)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "CUDA cannot load the kernels of vescomm (" + image_.from +
                        "): " + reason(error) +
                        "; the driver must support the CUDA whose nvcc compiled them");
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
        const cuda::Error error = functions_.library_get_kernel(&kernels_[k], library, symbols[k]);
        if (error == cuda::success) continue;
        // Before the sentence, whose allocation may fail. reason() clears an error of the unload.
        functions_.library_unload(library);
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "the kernels of vescomm (" + image_.from + ") lack " + symbols[k] + ": " +
                        reason(error) +
                        "; VESCOMM_GPU_KERNELS must name a file of the same version of vescomm");
    }
}

void KernelLibrary::launch(Kernel kernel, std::int64_t blocks, const void *parameters,
                           cuda::Stream stream) const {
    const auto k = static_cast<std::size_t>(kernel);
    void *addresses[] = {const_cast<void *>(parameters)};
    const cuda::Error error =
        functions_.launch_kernel(kernels_[k], {static_cast<unsigned>(blocks), 1, 1},
                                 {gpu_kernel::threads, 1, 1}, addresses, 0, stream);
    if (error != cuda::success)
        throw Error(VESCOMM_ERROR_SYSTEM, std::string("CUDA could not launch ") + symbols[k] +
                                              " in " + std::to_string(blocks) +
                                              " blocks: " + reason(error) +
                                              "; it also reports failures of earlier work");
}

void KernelLibrary::preload() const {
    const RelaxedCapture relaxed(runtime_);
    alignas(64) char attributes[cuda::max_attributes_bytes];
    for (std::size_t k = 0; k < kernels_.size(); ++k)
        if (const cuda::Error error = functions_.func_get_attributes(
                reinterpret_cast<cudaFuncAttributes *>(attributes), kernels_[k]);
            error != cuda::success)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        std::string("CUDA cannot load ") + symbols[k] + " on the current device: " +
                            reason(error) + "; the kernels need compute capability 8.0 or later");
}

// The error of CUDA, which the program does not find later.
std::string KernelLibrary::reason(cuda::Error error) const {
    runtime_.get_last_error();
    return runtime_.get_error_string(error);
}

const KernelLibrary &kernel_library() {
    // Never destroyed: threads may use it while the process exits.
    static const auto &library = *new KernelLibrary(examine_gpu_support());
    return library;
}

}  // namespace vescomm::internal
