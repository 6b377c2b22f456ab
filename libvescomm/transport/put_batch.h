// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vescomm {

// Whether offset + bytes stays within a memory of `size` bytes; cannot overflow.
constexpr bool within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
    return bytes <= size && offset <= size - bytes;
}

// Small parts of a put (Put::value) travel together as one message. Its bytes are a BatchPart for
// each part, each followed by the bytes of that part.
struct BatchPart {
    std::uint64_t offset = 0;  // within the receiver's memory
    std::uint64_t bytes = 0;
};
static_assert(sizeof(BatchPart) == 16);

// Parts of up to this size are copied into a batch, of up to this many bytes in all. A message
// between hosts costs several microseconds; the copy costs less than one.
inline constexpr std::uint64_t max_part_bytes = 8 << 10;
inline constexpr std::uint64_t max_batch_bytes = 64 << 10;

void append_part(std::vector<std::byte> &batch, std::uint64_t offset, const std::byte *from,
                 std::uint64_t bytes);

// Returns nullptr, or what is wrong with a batch for a memory of `memory_bytes`.
const char *check_batch(const std::byte *batch, std::uint64_t bytes,
                        std::uint64_t memory_bytes) noexcept;

// Puts the bytes of a batch, which has been checked, in their places.
void scatter_batch(const std::byte *batch, std::uint64_t bytes, std::byte *memory) noexcept;

}  // namespace vescomm
