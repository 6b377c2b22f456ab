// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/device_ragged.h"

namespace vescomm::internal::device {

// Puts the kernel of a call with the method `peer` on the stream.
void run_peers(DeviceCommunicator &comm, const RaggedCall &call, cuda::Stream stream);

}  // namespace vescomm::internal::device
