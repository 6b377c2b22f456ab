// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/request.h"

namespace vescomm::internal {

// Limit for one array, and for the calls of a group together: the bytes, and the steps through the
// staging buffer, stay countable.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 40;

// The arguments of one collective on arrays of the caller, or of one side of a message: a value.
//
// An array consists of blocks. An array that is gathered, scattered or exchanged has one block for
// each rank, any other array has one block. A rank without the array has no blocks.
struct Call {
    Request::Options options;
    std::vector<std::int64_t> counts;  // by rank; a single one if it is the same for all ranks
    std::vector<Piece> source, output;  // one piece for each block
    // all_to_all_v: elements that this rank sends to each rank, and receives from each.
    std::vector<std::int64_t> sends, receives;

    // Keeps the capacity of the vectors.
    void clear();
};

// True: one operation can execute both calls.
bool fuse(const Call &a, const Call &b);

// Turns calls into requests. Caches requests that are no longer in use, so that a call like an
// earlier one needs no new schedule. Not thread-safe.
class Calls {
public:
    // Collective, blocking.
    static std::shared_ptr<Calls> create(const std::shared_ptr<Communicator> &comm);

    // An empty call, to be filled and given to request(). There is only one, so that a call like an
    // earlier one allocates nothing.
    Call &blank();
    // One request, not started, for all of the calls. Every two of them fuse().
    std::unique_ptr<Request> request(std::span<const Call> calls);
    // Takes back a request that is no longer in use.
    void keep(std::unique_ptr<Request> request) noexcept;

    const std::shared_ptr<StagingBuffer> &staging() const { return staging_; }

private:
    static constexpr std::size_t max_cached = 64;

    Calls(std::shared_ptr<StagingBuffer> staging, std::shared_ptr<EagerBuffers> eager_buffers);

    std::shared_ptr<StagingBuffer> staging_;
    std::shared_ptr<EagerBuffers> eager_buffers_;
    std::vector<std::unique_ptr<Request>> cached_;  // oldest first
    Call blank_;
    Request::Arrays arrays_;  // for request(), which reuses its capacity
};

}  // namespace vescomm::internal
