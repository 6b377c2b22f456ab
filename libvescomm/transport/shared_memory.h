// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "base/descriptor.h"

namespace vescomm::internal {

// A mapped range of memory; the destructor unmaps it.
class MappedMemory {
public:
    MappedMemory() = default;
    // Maps a whole file for reading and writing, shared with all other mappings of it.
    MappedMemory(const Descriptor &file, std::size_t bytes);
    MappedMemory(MappedMemory &&other) noexcept;
    MappedMemory &operator=(MappedMemory &&other) noexcept;
    ~MappedMemory();

    std::byte *data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    std::byte *data_ = nullptr;
    std::size_t bytes_ = 0;
};

std::size_t page_bytes();
std::size_t round_up_to_page(std::size_t bytes);

// Creates a file of zeroed memory without a name. It is sparse: pages are allocated when they are
// first touched. Its size is sealed (F_SEAL_SHRINK, F_SEAL_GROW): a process that has the descriptor
// cannot truncate the file, which would kill every process that touches the mapping (SIGBUS).
Descriptor make_anonymous_file(const char *purpose, std::size_t bytes);

// Throws unless the file, received from another process, has the given size and its size is sealed.
void require_sealed(const Descriptor &file, std::size_t bytes);

// Throws OUT_OF_MEMORY unless this many bytes are free on this machine and in this process's
// control group. Otherwise the kernel would overcommit until it kills a process. Up to 4 MiB that
// this process asks for in small memories are not compared.
void require_free_memory(std::size_t bytes);

// Allocates the pages of [offset, offset + bytes) now, so that running out of memory is an error
// here and not a fault at a later access. The pages are placed near the calling thread's processor.
// After an interruption by a signal it allocates less at a time. Throws Error(TIMEOUT) when the
// deadline passes.
void reserve_memory(const Descriptor &file, std::size_t offset, std::size_t bytes,
                    Deadline deadline);

}  // namespace vescomm::internal
