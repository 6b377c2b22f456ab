// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "execute/operation.h"

namespace vescomm::internal {

// The operations of a communicator: which of them run, and those that their requests have given up.
//
// Threads: the caller holds the lock of the progress engine.
class OperationList {
public:
    // Reserves the memory for one operation more, so that starting and retiring it cannot fail.
    void admit() {
        running_.reserve(admitted_ + 1);
        retired_.reserve(retired_.size() + admitted_ + 1);
        ++admitted_;
    }
    // The request gives up the operation. One that may still be written to by a transport is kept.
    void retire(std::unique_ptr<Operation> operation, bool keep) noexcept {
        std::erase(running_, operation.get());
        --admitted_;
        if (keep) retired_.push_back(std::move(operation));
    }

    void start(Operation &operation) noexcept { running_.push_back(&operation); }
    const std::vector<Operation *> &running() const noexcept { return running_; }
    // No operation runs any more.
    void clear() noexcept { running_.clear(); }
    // Removes the running operations for which `ended` holds; returns their number.
    template <typename Ended>
    std::size_t erase_if(const Ended &ended) noexcept {
        return std::erase_if(running_, ended);
    }

private:
    std::vector<Operation *> running_;
    std::size_t admitted_ = 0;
    std::vector<std::unique_ptr<Operation>> retired_;
};

}  // namespace vescomm::internal
