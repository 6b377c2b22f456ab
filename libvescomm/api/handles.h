// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Definitions of the opaque types of vescomm.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/handle.h"
#include "comm/call.h"
#include "comm/call_groups.h"
#include "layout/layout.h"

struct vescomm_layout {
    vescomm::internal::Layout value;
};

// Requests on arrays that were freed, with the memory that they have.
struct SpareRequests {
    static constexpr std::size_t max = 16;
    std::vector<std::unique_ptr<vescomm_request>> all;

    SpareRequests();
    ~SpareRequests();
};

struct vescomm_comm : vescomm::internal::Handle {
    std::shared_ptr<vescomm::internal::Communicator> value;
    std::shared_ptr<vescomm::internal::Calls> calls;
    // Freed requests, for later calls.
    std::shared_ptr<SpareRequests> spare_requests = std::make_shared<SpareRequests>();
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
    // The group of which `parts` are the requests; nullptr for a single call.
    std::unique_ptr<vescomm::internal::CallGroup> group;
    // Takes the handle when it is freed.
    std::weak_ptr<SpareRequests> spare;
    bool freed = false;
    std::string explanation;  // text that vescomm_request_explain() returned last
};

inline SpareRequests::SpareRequests() {
    all.reserve(max);
}
inline SpareRequests::~SpareRequests() = default;
