// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What stands behind the opaque types of vescomm.h.
#pragma once

#include <memory>

#include "layout/layout.h"

namespace vescomm {
class Communicator;
class Memory;
class Buffer;
class Request;
}  // namespace vescomm

struct vescomm_layout {
    vescomm::Layout value;
};

struct vescomm_comm {
    std::shared_ptr<vescomm::Communicator> value;
};

struct vescomm_memory {
    std::shared_ptr<vescomm::Memory> value;
};

struct vescomm_buffer {
    std::shared_ptr<vescomm::Buffer> value;
};

struct vescomm_request {
    std::unique_ptr<vescomm::Request> value;
};
