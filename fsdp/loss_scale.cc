// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/loss_scale.h"

#include <algorithm>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

// Factors of gradients are from 2^-126 to 2^127 in f32; one bit is left for clipping.
constexpr double min_limit = 0x1p-126;
constexpr double max_limit = 0x1p126;

// Also false for NaN.
void require_between(const char *what, double value, double min, double max) {
    if (!(value >= min && value <= max))
        refuse("{} is {}; it must be a number from {} to {}", what, value, min, max);
}

}  // namespace

vescomm_fsdp_loss_scale_t next_loss_scale(vescomm_fsdp_loss_scale_t scale, bool skipped) {
    require_between("min_scale", scale.min_scale, min_limit, max_limit);
    require_between("max_scale", scale.max_scale, scale.min_scale, max_limit);
    require_between("scale", scale.scale, scale.min_scale, scale.max_scale);
    require_between("growth_factor", scale.growth_factor, 1, max_limit);
    require_between("backoff_factor", scale.backoff_factor, min_limit, 1);
    if (scale.growth_interval < 0)
        refuse("growth_interval is {}; it must be at least 0", scale.growth_interval);
    if (scale.good_steps < 0) refuse("good_steps is {}; it must be at least 0", scale.good_steps);
    if (skipped) {
        scale.scale = std::max(scale.scale * scale.backoff_factor, scale.min_scale);
        scale.good_steps = 0;
    } else if (++scale.good_steps >= scale.growth_interval && scale.growth_interval > 0) {
        scale.scale = std::min(scale.scale * scale.growth_factor, scale.max_scale);
        scale.good_steps = 0;
    }
    return scale;
}

}  // namespace vescomm::fsdp
