// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/loops/vectorise.h"

// Clipping of gradients by their norm, for the step of fsdp and for the kernel of gpu/kernels. All
// functions have internal linkage.
namespace vescomm::internal {
namespace {

// The formula of torch.nn.utils.clip_grad_norm_.
VESCOMM_INLINE double clip_factor(double max_norm, double norm) {
    const double factor = max_norm / (norm + 1e-6);
    return max_norm > 0 && factor < 1.0 ? factor : 1.0;
}

// True if a multiplication in f32 by the factor is as exact as that of any other factor.
VESCOMM_INLINE bool is_f32_factor(double factor) {
    const double size = factor < 0 ? -factor : factor;
    return size >= FLT_MIN && size <= FLT_MAX;
}

// True if every gradient, multiplied by `factor`, is finite in f32. `norm`: of the gradients
// multiplied by `scale`.
VESCOMM_INLINE bool representable(double norm, double scale, double factor) {
    if (!(norm <= DBL_MAX)) return false;
    if (scale == 0) return true;
    const double clipped = norm * (factor / scale);
    return is_f32_factor(factor) && clipped <= FLT_MAX;
}

}  // namespace
}  // namespace vescomm::internal
