// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Memory for activations. It has one owner, is aligned for vectors, and counts its bytes. Zone:
// set-up.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace train_gpt {

class Arena {
public:
    // Returns uninitialised memory for `count` values, valid as long as the arena. The operating
    // system allocates its pages on first touch.
    template <typename Value>
    Value *take(std::size_t count) {
        static_assert(std::is_trivial_v<Value>);
        const std::size_t bytes = (count * sizeof(Value) / alignment + 1) * alignment;
        blocks_.emplace_back(std::aligned_alloc(alignment, bytes));
        if (blocks_.back() == nullptr) throw std::bad_alloc();
        bytes_ += bytes;
        return static_cast<Value *>(blocks_.back().get());
    }

    std::size_t bytes() const { return bytes_; }

private:
    static constexpr std::size_t alignment = 64;  // a cache line, and the widest vector

    struct Free {
        void operator()(void *block) const { std::free(block); }
    };

    std::vector<std::unique_ptr<void, Free>> blocks_;
    std::size_t bytes_ = 0;
};

}  // namespace train_gpt
