// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls that end the work of a device may not return: they run in threads of their own. What they
// still use after the limit is leaked.
#pragma once

#include "base/deadline.h"
#include "comm/communicator.h"
#include "gpu/background_call.h"
#include "gpu/cuda_functions.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::internal {

// Limit of a wait for the end of NCCL or of work.
Deadline end_limit(const Communicator &comm);

// Logs that something stays until the process ends.
void log_leak(const Communicator &comm, const char *what, const char *why) noexcept;

// Starts `call(cuda)` on a device, in a thread of its own.
template <typename Call>
BackgroundCall call_on_device(const cuda::Runtime &runtime, int device, const Call &call) {
    return BackgroundCall([cuda = runtime, device, call] {
        const RelaxedCapture relaxed(cuda);
        cuda.set_device(device);
        return call(cuda);
    });
}

}  // namespace vescomm::internal
