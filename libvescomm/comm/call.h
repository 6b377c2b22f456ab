// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/call_arguments.h"
#include "comm/call_sites.h"
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
    std::int32_t tag = 0;  // of a message

    // Keeps the capacity of the vectors.
    void clear();
};

// True: one operation can execute both calls.
bool fuse(const Call &a, const Call &b);

class CallGroups;

// Turns calls into requests. Caches requests that are no longer in use: a call that is repeated
// with the same arguments is neither checked nor described again, and a call like an earlier one
// needs no new schedule. Not thread-safe.
class Calls {
public:
    // Collective, blocking.
    static std::shared_ptr<Calls> create(const std::shared_ptr<Communicator> &comm);
    ~Calls();

    // The cached request that made a call with the same arguments last, or nullptr. It stays in the
    // cache.
    Request *find(const CallArguments &arguments) noexcept {
        Cached *const found = locate(arguments);
        return found == nullptr ? nullptr : found->request.get();
    }
    // Takes that request out of the cache; returns nullptr if there is none.
    std::unique_ptr<Request> take(const CallArguments &arguments) noexcept;
    // Takes a request out that find() has returned.
    std::unique_ptr<Request> take(const Request &request) noexcept;

    // An empty call, to be filled and given to request(). There is only one, so that a call like an
    // earlier one allocates nothing.
    Call &blank();
    // One request, not started, for all of the calls. Every two of them fuse().
    std::unique_ptr<Request> request(std::span<const Call> calls) { return request(calls, false); }
    // A request, not started, for a call that is to be found by its key.
    std::unique_ptr<Request> request(const Call &call, const CallKey &key);
    // Takes back a request that is no longer in use.
    void keep(std::unique_ptr<Request> request) noexcept;

    CallGroups &groups() { return *groups_; }
    int ranks() const { return ranks_; }
    const std::shared_ptr<StagingBuffer> &staging() const { return staging_; }

private:
    static constexpr std::size_t max_cached = CallSites::max_indices;
    static constexpr std::size_t no_request = CallSites::none;

    struct Cached {
        std::unique_ptr<Request> request;  // nullptr: the place is free
        std::uint64_t used = 0;  // higher: later
        Cached *next = nullptr;  // the one that find() or take() found after this one
        bool repeated = false;  // find() or take() has found it
    };

    Calls(std::shared_ptr<StagingBuffer> staging, std::shared_ptr<EagerBuffers> eager_buffers);

    // The cached request that repeats a call, or nullptr. Counts the use. Programs repeat their
    // calls in the same order: where they do, no hash is computed.
    Cached *locate(const CallArguments &arguments) noexcept {
        Cached *found = last_->next;
        if (found == nullptr || !found->request || !found->request->repeats(arguments))
            [[unlikely]] {
            found = search(arguments);
            if (found == nullptr) return nullptr;
            last_->next = found;
        }
        last_ = found;
        found->repeated = true;
        found->used = ++uses_;
        return found;
    }
    // As locate(), by the hash of the arguments. Counts nothing.
    Cached *search(const CallArguments &arguments) noexcept;
    std::unique_ptr<Request> take_out(std::size_t at) noexcept;
    // True if a call with this hash was made not long ago. Remembers this one.
    bool is_made_again(const CallKey &key) noexcept;
    std::unique_ptr<Request> request(std::span<const Call> calls, bool made_again);
    // The index of a cached request that can execute such a call, or no_request.
    std::size_t find_suiting(const Request::Options &options, bool made_again) const noexcept;

    std::shared_ptr<StagingBuffer> staging_;
    std::shared_ptr<EagerBuffers> eager_buffers_;
    int ranks_;
    std::vector<Cached> cached_;  // never grows beyond its first capacity
    CallSites sites_;  // indices of cached_, by the hash of the arguments
    // Hashes of the latest calls that no cached request had made before.
    std::array<std::uint32_t, 256> made_ = {};
    std::size_t oldest_made_ = 0;
    std::uint64_t uses_ = 0;
    Cached first_;  // holds no request
    Cached *last_ = &first_;  // the one that locate() has found last
    Call blank_;
    Request::Arrays arrays_;  // for request(), which reuses its capacity
    std::unique_ptr<CallGroups> groups_;
};

}  // namespace vescomm::internal
