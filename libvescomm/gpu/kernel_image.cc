// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernel_image.h"

#include <array>
#include <fstream>
#include <vector>

#include "base/error.h"
#include "config/config.h"

namespace vescomm::internal {

KernelImage find_kernel_image() {
    KernelImage image;
    const char *named = process_environment()("VESCOMM_GPU_KERNELS");
    const std::string file = named != nullptr ? named : "";
    if (file.empty()) {
        image.bytes = embedded_kernels();
        image.from = "in this library, " + std::to_string(image.bytes.size()) + " bytes";
        if (!image.bytes.empty()) return image;
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "this build of vescomm has no kernels for device memory, because there was no "
                    "nvcc, or the option gpu_kernels was disabled; build it where nvcc 12.8 or "
                    "later is on the path, or let VESCOMM_GPU_KERNELS name the file "
                    "vescomm_gpu_kernels.fatbin of such a build");
    }
    std::ifstream stream(file, std::ios::binary);
    std::vector<char> read;
    std::array<char, 1 << 16> part;
    while (stream.read(part.data(), part.size()) || stream.gcount() > 0)
        read.insert(read.end(), part.begin(), part.begin() + stream.gcount());
    if (!stream.eof() || read.empty())
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "the kernels for device memory in " + file +
                        ", which VESCOMM_GPU_KERNELS names, cannot be read, or the file is empty; "
                        "name the file vescomm_gpu_kernels.fatbin of a build with nvcc");
    const auto bytes = std::as_bytes(std::span(read));
    image.owner.assign(bytes.begin(), bytes.end());
    image.bytes = image.owner;
    image.from = file;
    return image;
}

}  // namespace vescomm::internal
