// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Definitions of the opaque types of vescomm.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/handle.h"
#include "comm/call.h"
#include "layout/layout.h"

struct vescomm_layout {
    vescomm::internal::Layout value;
};

struct vescomm_comm : vescomm::internal::Handle {
    std::shared_ptr<vescomm::internal::Communicator> value;
    std::shared_ptr<vescomm::internal::Calls> calls;
    std::optional<std::vector<vescomm::internal::Call>> group;  // between group_begin and group_end
};

struct vescomm_memory : vescomm::internal::Handle {
    std::shared_ptr<vescomm::internal::Memory> value;
};

struct vescomm_buffer : vescomm::internal::Handle {
    std::shared_ptr<vescomm::internal::Buffer> value;
};

struct vescomm_request : vescomm::internal::Handle {
    // One request, or the requests of a group in the order in which they start.
    std::vector<std::unique_ptr<vescomm::internal::Request>> parts;
    // Cache to which requests on arrays return when they are freed; empty for requests on buffers.
    std::weak_ptr<vescomm::internal::Calls> calls;
    std::string explanation;  // text that vescomm_request_explain() returned last
};
