// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/request.h"

namespace vescomm {

// Of an array, and of what the calls of a group have together: rounds through the staging buffer
// stay countable, and bytes.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 40;

// One collective on arrays of the caller, or one side of a message, as it was called: a value.
//
// Arrays consist of blocks. One that holds something of every rank has a block for each (what is
// gathered, scattered or exchanged), others have one; a rank that has no such array has none.
struct Call {
    Request::Options options;
    std::vector<std::int64_t> counts;  // of every rank; of all, where every rank has the same
    std::vector<Piece> source, output;  // a block each
    // all_to_all_v: counts of what this rank has for each, and gets from each.
    std::vector<std::int64_t> sends, receives;

    // Keeps the room of the vectors.
    void clear();
};

// Whether two calls can be one operation.
bool fuse(const Call &a, const Call &b);

// Turns calls into requests and keeps those that are done with, so that a call like an earlier one
// costs no new schedule. Not thread-safe.
class Calls {
public:
    // Collective, blocking.
    static std::shared_ptr<Calls> create(const std::shared_ptr<Communicator> &comm);

    // An empty call to be filled and given to request(). There is only one, so that a call like
    // an earlier one allocates nothing.
    Call &blank();
    // One operation for all of the calls, which fuse. Not started.
    std::unique_ptr<Request> request(std::span<const Call> calls);
    // Takes back one that is no longer needed.
    void keep(std::unique_ptr<Request> request) noexcept;

    const std::shared_ptr<StagingBuffer> &staging() const { return staging_; }

private:
    static constexpr std::size_t max_kept = 64;

    Calls(std::shared_ptr<StagingBuffer> staging, std::shared_ptr<EagerBuffers> eager_buffers);

    std::shared_ptr<StagingBuffer> staging_;
    std::shared_ptr<EagerBuffers> eager_buffers_;
    std::vector<std::unique_ptr<Request>> kept_;  // the most recent one last
    Call blank_;
    Request::Arrays arrays_;  // of the calls at hand
};

}  // namespace vescomm
