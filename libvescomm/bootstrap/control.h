// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "bootstrap/frame.h"
#include "vescomm/vescomm.h"

namespace vescomm {

// The control plane of one communicator: the one operation that set-up needs, and news of peers
// that are gone. Never on the path of data.
//
// What takes long is started and then tested, so that a communicator can move its operations along
// meanwhile: ranks may wait here for a rank that waits for an operation.
//
// Threads: all-gathers and leaving from one thread at a time; fail() and has_left() from any
// thread.
class Control {
public:
    // Called at most once, with the first cause: from a thread of the control plane, or from one
    // that test_all_gather() throws that cause in, before it does.
    using Listener = std::function<void(vescomm_status_t, const std::string &)>;

    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;

    // Collective: every rank contributes some bytes and receives everyone's, by rank. `label` says
    // which call this is ("buffer \"block.3\" creation"): when ranks meet with different labels the
    // communicator fails with MISMATCH, naming two of the ranks and both labels. One at a time: the
    // next starts after test_all_gather() has returned the result.
    // Throws INVALID_ARGUMENT, without contributing, when this rank has left.
    virtual void start_all_gather(std::string_view label, std::string_view bytes) = 0;
    // The result, once. Nothing: ask again. Throws the communicator's failure.
    virtual std::optional<std::vector<std::string>> test_all_gather() = 0;
    // Gives up the all-gather under way: finds out which ranks are missing, fails the communicator,
    // and throws TIMEOUT, which names them.
    [[noreturn]] virtual void expire_all_gather(double waited_seconds) = 0;

    // Sets what is called when the result of an all-gather, a goodbye or the end has come; from a
    // thread of the control plane. It must not call this object.
    virtual void on_event(std::function<void()> wake) = 0;

    // Both in one call, without moving anything else along: for set-up.
    // Throws as the three above.
    std::vector<std::string> all_gather(std::string_view label, std::string_view bytes,
                                        Deadline deadline);

    // Sets who hears of the first failure, wherever it happened. A failure that is already known
    // is delivered at once, from the calling thread.
    virtual void listen(Listener listener) = 0;

    // A key that only the ranks of this job know, for one purpose: HMAC-SHA256 of the purpose under
    // the secret. The same on every rank.
    virtual FrameKey derive_key(std::string_view /* purpose */) const {
        throw Error(VESCOMM_ERROR_INTERNAL, "this control plane has no secret to derive keys from");
    }

    // Numeric address of the interface on which this process reaches the others. Empty: unknown.
    virtual std::string local_address() const { return {}; }

    // Tells every rank that the communicator is broken, and why. Does not block.
    virtual void fail(vescomm_status_t status, const std::string &why) noexcept = 0;

    // Orderly end: says goodbye. A rank that disappears without goodbye is a failure; one that has
    // said goodbye is not.
    virtual void start_leave() = 0;
    // Whether every rank has said goodbye, or the communicator broke.
    virtual bool test_leave() = 0;
    // This rank does not wait any longer: failures from here on are no news.
    virtual void end_leave() noexcept {}
    // Whether that rank has said goodbye, as far as this rank knows.
    virtual bool has_left(int rank) const = 0;
    // All of it in one call: returns when test_leave() says so or the deadline has passed.
    void leave(Deadline deadline) noexcept;

protected:
    // Sleeps until test_all_gather() or test_leave() has something to say, or the deadline.
    virtual void sleep_until_event(Deadline deadline) = 0;
};

}  // namespace vescomm
