// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/deadline.h"
#include "base/signals.h"

namespace vescomm::internal {

// A call of a library that may never return, in a thread of its own: the caller waits for it within
// a limit. If the limit passes, the thread stays until the call returns or the process ends.
class BackgroundCall {
public:
    // Starts `call`, which returns an int and owns all that it uses. If no thread can be started,
    // the calling thread makes the call.
    template <typename Call>
    explicit BackgroundCall(const Call &call) noexcept {
        try {
            auto state = std::make_shared<State>();
            const SignalsBlocked blocked;
            std::thread([state, call] { state->end(call()); }).detach();
            state_ = std::move(state);
        } catch (const std::exception &) {
            result_ = call();
        }
    }

    bool done() const {
        if (!state_) return true;
        const std::lock_guard lock(state_->mutex);
        return state_->done;
    }
    // Waits until the call has returned. Returns false if it has not at the limit.
    bool wait(Deadline limit) const {
        if (!state_) return true;
        std::unique_lock lock(state_->mutex);
        return state_->changed.wait_until(lock, limit.moment(), [&] { return state_->done; });
    }
    // Result of the call. Valid if done().
    int result() const {
        if (!state_) return result_;
        const std::lock_guard lock(state_->mutex);
        return state_->result;
    }

private:
    struct State {
        void end(int value) {
            const std::lock_guard lock(mutex);
            result = value;
            done = true;
            changed.notify_all();
        }

        std::mutex mutex;
        std::condition_variable changed;
        bool done = false;
        int result = 0;
    };
    std::shared_ptr<State> state_;  // nullptr: the calling thread has made the call
    int result_ = 0;
};

}  // namespace vescomm::internal
