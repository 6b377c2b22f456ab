// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/call.h"

namespace vescomm::internal {

// The calls of a group, and the requests that execute them.
struct CallGroup {
    std::vector<CallKey> keys;  // by call
    std::vector<Call> calls;
    std::vector<std::unique_ptr<Request>> parts;  // in the order in which they start
};

// The calls between vescomm_group_begin() and vescomm_group_end(), and earlier groups.
//
// A group often repeats an earlier one call by call. As long as it does, its calls are only
// compared, and the requests of the earlier group are used again. Not thread-safe.
class CallGroups {
public:
    explicit CallGroups(Calls &calls) : calls_(calls) { kept_.reserve(max_kept); }

    bool is_open() const noexcept { return open_; }
    void begin() noexcept;
    // True if the call is the next one of an earlier group. It needs no add().
    bool repeats(const CallArguments &arguments) noexcept;
    void add(const Call &call, const CallArguments &arguments);
    // Ends the group. Calls that fuse become one request, at the position of the first. If it
    // throws std::bad_alloc, the group is still open, with all of its calls, unless the
    // communicator is broken. After any other exception it has ended, and nothing has happened.
    std::unique_ptr<CallGroup> end();
    // Takes back a group of which no request is in use.
    void keep(std::unique_ptr<CallGroup> group) noexcept;

private:
    static constexpr std::size_t max_kept = 32;

    // Repeats, from now on, an earlier group that begins with the calls so far and for which
    // `suits` holds. False: there is none.
    template <typename Suits>
    bool repeat_another(const Suits &suits) noexcept;
    // Stops repeating: the calls so far become calls of a new group.
    void leave_repeated();
    void make_parts(CallGroup &group);

    Calls &calls_;
    bool open_ = false;
    std::unique_ptr<CallGroup> repeated_;  // the earlier group that is repeated so far
    std::size_t repeats_ = 0;  // calls of it that were repeated
    std::unique_ptr<CallGroup> made_;  // the open group, unless it repeats
    std::vector<std::unique_ptr<CallGroup>> kept_;  // latest last
};

}  // namespace vescomm::internal
