// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vescomm::internal {

// True if offset + bytes is within a memory of `size` bytes. Cannot overflow.
constexpr bool within(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
    return bytes <= size && offset <= size - bytes;
}

// Header of one part in a batch. Small parts of a put (Put::value) are sent together as one
// message; its bytes are, for each part, a BatchPart and the bytes of that part.
struct BatchPart {
    std::uint64_t offset = 0;  // within the receiver's memory
    std::uint64_t bytes = 0;
};
static_assert(sizeof(BatchPart) == 16);

// Parts of up to max_part_bytes are copied into a batch of up to max_batch_bytes. A message between
// hosts costs several microseconds; the copy costs less than one.
inline constexpr std::uint64_t max_part_bytes = 8 << 10;
inline constexpr std::uint64_t max_batch_bytes = 64 << 10;

void append_part(std::vector<std::byte> &batch, std::uint64_t offset, const std::byte *from,
                 std::uint64_t bytes);

// Returns nullptr, or the fault of a batch for a memory of `memory_bytes`.
const char *check_batch(const std::byte *batch, std::uint64_t bytes,
                        std::uint64_t memory_bytes) noexcept;

// Copies the parts of a checked batch to their offsets.
void scatter_batch(const std::byte *batch, std::uint64_t bytes, std::byte *memory) noexcept;

}  // namespace vescomm::internal
