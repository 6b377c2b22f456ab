// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/failure.h"

#include <cassert>

#include "base/error.h"

namespace vescomm::internal {

bool Failure::set(vescomm_status_t status, const std::string &why) noexcept {
    std::function<void(vescomm_status_t, const std::string &)> record;
    {
        std::unique_lock lock(mutex_);
        if (status_ != VESCOMM_OK) {
            visible_.wait(lock, [this] { return broken(); });
            return false;
        }
        status_ = status;
        try {
            why_ = why;
        } catch (...) {
            why_.clear();
        }
        // Callers give an empty sentence if they run out of memory. The sentence below fits into
        // the string object and needs no allocation.
        if (why_.empty()) why_ = "out of memory";
        record.swap(record_);
    }
    try {
        if (record) record(status, why);
    } catch (...) {
        // Recording failed, for example for lack of memory. The failure itself is still reported.
    }
    std::function<void()> then;
    {
        std::lock_guard lock(mutex_);
        then.swap(then_);
        broken_.store(true, std::memory_order_release);
    }
    visible_.notify_all();
    if (then) then();
    return true;
}

void Failure::on_first(std::function<void()> then) {
    {
        std::lock_guard lock(mutex_);
        if (!broken()) {
            assert(!then_);
            then_ = std::move(then);
            return;
        }
    }
    if (then) then();
}

void Failure::record_first(std::function<void(vescomm_status_t, const std::string &)> record) {
    std::lock_guard lock(mutex_);
    record_ = std::move(record);
}

vescomm_status_t Failure::status() const noexcept {
    std::lock_guard lock(mutex_);
    return status_;
}

std::string Failure::why() const {
    std::lock_guard lock(mutex_);
    return why_;
}

void Failure::throw_cause() const {
    throw Error(status(), why());
}

}  // namespace vescomm::internal
