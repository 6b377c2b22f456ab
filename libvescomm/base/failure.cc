// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/failure.h"

#include "base/error.h"

namespace vescomm {

bool Failure::set(vescomm_status_t status, const std::string &why) noexcept {
    std::function<void()> then;
    {
        std::lock_guard lock(mutex_);
        if (status_ != VESCOMM_OK) return false;
        status_ = status;
        try {
            why_ = why;
        } catch (...) {
            // Out of memory for the sentence: the status alone must do.
        }
        then.swap(then_);
        try {
            if (record_) record_(status, why_);
        } catch (...) {
            // No memory for the record: the failure matters more.
        }
        broken_.store(true, std::memory_order_release);
    }
    if (then) then();
    return true;
}

void Failure::on_first(std::function<void()> then) {
    {
        std::lock_guard lock(mutex_);
        if (status_ == VESCOMM_OK) {
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

void Failure::check() const {
    if (broken()) throw Error(status(), why());
}

}  // namespace vescomm
