// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace vescomm::internal {

// Compiled kernels for all supported GPUs: a fat binary of nvcc.
struct KernelImage {
    std::span<const std::byte> bytes;
    std::vector<std::byte> owner;  // the bytes, if they are from a file
    std::string from;  // for people
};

// Kernels that the build has compiled; empty if it has compiled none.
std::span<const std::byte> embedded_kernels() noexcept;

// The kernels of the file VESCOMM_GPU_KERNELS, else those of the build. Throws UNSUPPORTED if there
// are none, or if the file cannot be read.
KernelImage find_kernel_image();

}  // namespace vescomm::internal
