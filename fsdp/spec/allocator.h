// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

// Memory of this rank alone: of the allocator of the program, or of the process. A value.
class Allocator {
public:
    // Memory of the process.
    Allocator() = default;
    // Throws Failure unless both functions are set.
    explicit Allocator(const vescomm_fsdp_allocator_t &program);

    // Returns memory at a cache line, with any contents. `bytes`: with an allocator of the program
    // at least 1. Throws std::bad_alloc.
    std::byte *allocate(std::size_t bytes) const;
    // False: memory of the process.
    bool of_program() const { return allocate_ != nullptr; }
    void free(std::byte *memory, std::size_t bytes) const noexcept;

private:
    void *context_ = nullptr;
    decltype(vescomm_fsdp_allocator_t::allocate) allocate_ = nullptr;  // nullptr: of the process
    decltype(vescomm_fsdp_allocator_t::deallocate) deallocate_ = nullptr;
};

struct Free {
    Allocator allocator;
    std::size_t bytes = 0;
    void operator()(std::byte *data) const noexcept { allocator.free(data, bytes); }
};

// Zeroed bytes at a cache line.
class AlignedBytes {
public:
    AlignedBytes() = default;
    explicit AlignedBytes(std::size_t bytes, const Allocator &allocator = {});

    std::byte *data() const { return data_.get(); }
    std::size_t size() const { return data_.get_deleter().bytes; }

private:
    std::unique_ptr<std::byte[], Free> data_;
};

}  // namespace vescomm::fsdp
