// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/device_ragged.h"
#include "gpu/kernel_library.h"

namespace vescomm::internal::device {

// Puts the kernel of a call with the method `peer` on the stream.
void run_peers(DeviceCommunicator &comm, const RaggedCall &call, cuda::Stream stream);

// Puts a kernel that waits for other ranks on the stream. If that fails, the communicator breaks.
void launch_peers(DeviceCommunicator &comm, Kernel kernel, unsigned blocks, const void *parameters,
                  cuda::Stream stream);

}  // namespace vescomm::internal::device
