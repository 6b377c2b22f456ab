// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "gpu/device_communicator.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal::device {

// A block of an array for each rank.
struct ExchangeBlocks {
    void *data = nullptr;
    const std::int64_t *counts = nullptr;  // elements
    const std::int64_t *offsets = nullptr;  // of blocks in `data`; nullptr: one after another
};

// Sends a block to every rank, and receives one of every rank: a collective as those of
// device_collectives.h. gpu.h describes the arguments.
void all_to_all_v(DeviceCommunicator &comm, const ExchangeBlocks &source,
                  const ExchangeBlocks &output, vescomm_type_t type, cuda::Stream stream);

}  // namespace vescomm::internal::device
