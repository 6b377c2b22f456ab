// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "base/error.h"
#include "comm/channels.h"
#include "transport/transport.h"

namespace vescomm::internal {

// Numbers for the objects of a communicator. They are the same on every rank, because all ranks
// create objects in the same order.
class ObjectNumbers {
public:
    Channels &channels() { return channels_; }
    // A channel that is never reused; require_same_and_take_channel() takes reusable ones.
    std::uint32_t next_channel() { return channels_.fresh(); }
    // Numbers are not reused: bytes that arrive late must not find another memory of the same
    // number.
    MemoryId next_memory() {
        if (memories_ == std::numeric_limits<MemoryId>::max())
            throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                        "this communicator has made 2^32 - 1 memories, the most it can; make "
                        "another communicator");
        return memories_++;
    }
    // For requests on buffers that share the staging buffer. This rank's proposal, and the number
    // that all ranks take: the highest proposal. A creation that failed may have left different
    // proposals.
    std::uint64_t proposed_request() const { return requests_; }
    void take_request(std::uint64_t number) { requests_ = number + 1; }
    // Communicators created from this one so far.
    std::uint64_t next_child() { return children_++; }

private:
    Channels channels_;
    std::atomic<MemoryId> memories_{0};
    std::uint64_t requests_ = 0;
    std::uint64_t children_ = 0;
};

}  // namespace vescomm::internal
