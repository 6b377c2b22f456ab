// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What stands behind the opaque types of vescomm.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/handle.h"
#include "comm/call.h"
#include "layout/layout.h"

struct vescomm_layout {
    vescomm::Layout value;
};

struct vescomm_comm : vescomm::Handle {
    std::shared_ptr<vescomm::Communicator> value;
    std::shared_ptr<vescomm::Calls> calls;
    std::optional<std::vector<vescomm::Call>> group;  // between group_begin and group_end
};

struct vescomm_memory : vescomm::Handle {
    std::shared_ptr<vescomm::Memory> value;
};

struct vescomm_buffer : vescomm::Handle {
    std::shared_ptr<vescomm::Buffer> value;
};

struct vescomm_request : vescomm::Handle {
    // One, or those of a group, in the order in which they start.
    std::vector<std::unique_ptr<vescomm::Request>> parts;
    // Where those of arrays go when they are no longer needed.
    std::weak_ptr<vescomm::Calls> calls;
    std::string explanation;
};
