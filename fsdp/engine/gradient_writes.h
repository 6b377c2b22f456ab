// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Which gradients of the units in slots the trainer has written. The rest counts as zero. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

class GradientWrites {
public:
    explicit GradientWrites(const Spec &spec);

    // A unit was given a slot.
    void begin(const ModelPlan &plan, int unit);
    // True: an earlier use has written the gradient.
    bool written(std::size_t parameter) const { return written_[parameter]; }
    void set_written(std::size_t parameter) { written_[parameter] = true; }

    struct Begin {
        vescomm_fsdp_gradient_mode_t mode;
        bool zeros;  // the gradient must be zero before
    };
    // Decides how the trainer writes a gradient, and counts it as written. A gradient of several
    // parameters of one unit is always added to, and begins as zero: the trainer may ask for all of
    // them before it writes the first one.
    Begin begin_write(std::size_t parameter);

    // Calls body(begin, end) for the elements of a bucket that were not written. Gaps between
    // parameters are among them: they are summed like all other elements, and units that share a
    // slot have them in different places.
    template <typename Body>
    void for_gaps(const Bucket &bucket, Body &&body) const {
        std::int64_t end = 0;
        for (const Place &place : bucket.places) {
            if (!written_[place.parameter]) continue;
            if (place.offset > end) body(end, place.offset);
            end = std::max(end, place.offset + place.elements);
        }
        if (bucket.elements > end) body(end, bucket.elements);
    }

private:
    std::vector<bool> written_;  // by parameter
    std::vector<bool> shared_;  // by parameter: several parameters of one unit have its gradient
};

// Throws Failure unless a gradient of `type` can be added to one of `to_type`.
void require_gradient_type(vescomm_type_t type, vescomm_type_t to_type);

}  // namespace vescomm::fsdp
