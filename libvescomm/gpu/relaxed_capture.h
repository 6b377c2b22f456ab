// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/cuda_functions.h"

namespace vescomm::internal {

// Until the end of the scope, the calling thread may make CUDA calls that a capture would forbid:
// allocations and queries do not belong to the graph that the program captures meanwhile. `Runtime`
// has the functions of CUDA.
template <typename Runtime>
class RelaxedCapture {
public:
    explicit RelaxedCapture(const Runtime &runtime) : runtime_(runtime) {
        if (runtime_.exchange_capture_mode(&mode_) == cuda::success) return;
        runtime_.get_last_error();
        changed_ = false;
    }
    ~RelaxedCapture() {
        if (changed_) runtime_.exchange_capture_mode(&mode_);
    }
    RelaxedCapture(const RelaxedCapture &) = delete;
    RelaxedCapture &operator=(const RelaxedCapture &) = delete;

private:
    const Runtime &runtime_;
    int mode_ = cuda::capture_mode_relaxed;  // then the mode that the thread had before
    bool changed_ = true;
};

}  // namespace vescomm::internal
