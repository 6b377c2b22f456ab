// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// For builds without nvcc. Others generate embedded_kernels() with embed_kernels.py.
#include "gpu/kernel_image.h"

namespace vescomm::internal {

std::span<const std::byte> embedded_kernels() noexcept {
    return {};
}

}  // namespace vescomm::internal
