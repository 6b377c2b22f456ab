// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/put_batch.h"

#include <cstring>

namespace vescomm::internal {

void append_part(std::vector<std::byte> &batch, std::uint64_t offset, const std::byte *from,
                 std::uint64_t bytes) {
    const BatchPart part{offset, bytes};
    const auto *head = reinterpret_cast<const std::byte *>(&part);
    batch.insert(batch.end(), head, head + sizeof part);
    batch.insert(batch.end(), from, from + bytes);
}

const char *check_batch(const std::byte *batch, std::uint64_t bytes,
                        std::uint64_t memory_bytes) noexcept {
    BatchPart part;
    for (std::uint64_t at = 0; at < bytes; at += part.bytes) {
        if (bytes - at < sizeof part) return "it ends within the head of a part";
        std::memcpy(&part, batch + at, sizeof part);
        at += sizeof part;
        if (part.bytes > bytes - at) return "it ends within a part";
        if (!within(part.offset, part.bytes, memory_bytes))
            return "a part of it does not fit into the memory";
    }
    return nullptr;
}

void scatter_batch(const std::byte *batch, std::uint64_t bytes, std::byte *memory) noexcept {
    BatchPart part;
    for (std::uint64_t at = 0; at < bytes; at += part.bytes) {
        std::memcpy(&part, batch + at, sizeof part);
        at += sizeof part;
        // A memory of no bytes has no address.
        if (part.bytes > 0) std::memcpy(memory + part.offset, batch + at, part.bytes);
    }
}

}  // namespace vescomm::internal
