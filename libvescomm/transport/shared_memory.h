// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/deadline.h"
#include "base/descriptor.h"

namespace vescomm {

// A mapped range of memory; unmapped at the end of its life.
class MappedMemory {
public:
    MappedMemory() = default;
    // Maps the whole of a file, to read and write, shared with whoever else maps it.
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

// Memory without a name, zeroed, sparse: pages take room when they are first touched. Its size is
// sealed: a process that has the descriptor cannot truncate it, which would end every other one
// that touches the mapping (SIGBUS).
Descriptor make_anonymous_file(const char *purpose, std::size_t bytes);

// Throws unless the file, received from another process, has the given size and is sealed.
void require_sealed(const Descriptor &file, std::size_t bytes);

// Throws OUT_OF_MEMORY unless that many bytes are free on this machine, or to this process's
// control group. The kernel itself would go on until it has to kill somebody.
void require_room(std::size_t bytes);

// Takes room for [offset, offset + bytes) now, so that running out is an error here and not a fault
// at some later access. The pages land near the calling thread's processor. Signals that interrupt
// it make it take less at a time. Throws Error(TIMEOUT) when the deadline passes.
void take_room(const Descriptor &file, std::size_t offset, std::size_t bytes, Deadline deadline);

}  // namespace vescomm
