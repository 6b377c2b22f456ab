// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "gpu/device_ragged.h"

namespace vescomm::internal::device {

// Puts the calls with the method `copy_engine` on the stream:
//
//     meeting ─► copies from the memory of all other ranks ─► meeting
//
// The first meeting orders the copies after the work by which the other ranks have filled their
// shards, the second one later writes to these shards after the copies. A meeting is a kernel of
// one block. The copies are made one after another, and need no multiprocessor.
//
// A meeting that the host ends does not skip the copies: they read windows of ranks that may be
// dead. Their memory stays mapped until NCCL's communicator ends, which is after the copies
// (NcclCommunicator::keep_windows()). Decision: docs/design/0045-copy-engines-gather.md.
void run_copies(DeviceCommunicator &comm, std::span<const RaggedCall> calls, cuda::Stream stream);

}  // namespace vescomm::internal::device
