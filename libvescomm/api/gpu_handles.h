// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Definitions of the opaque types of gpu.h.
#pragma once

#include <memory>
#include <string>

#include "api/handle.h"
#include "comm/communicator.h"
#include "gpu/device_buffer.h"
#include "gpu/device_communicator.h"
#include "vescomm/gpu.h"

struct vescomm_gpu_comm : vescomm::internal::Handle {
    std::shared_ptr<vescomm::internal::Communicator> parent;
    // Only this handle keeps it: buffers have weak references.
    std::shared_ptr<vescomm::internal::DeviceCommunicator> value;
    std::string explanation;  // text that vescomm_gpu_explain() returned last
};

struct vescomm_gpu_buffer : vescomm::internal::Handle {
    std::unique_ptr<vescomm::internal::DeviceBuffer> value;
    std::string explanation;  // text that vescomm_gpu_buffer_explain() returned last
};
