// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/transport.h"

namespace vescomm::internal {

// A put, or a batch of small parts (put_batch.h), that its transport has not handed over
// completely.
struct QueuedPut {
    Put put;
    std::uint64_t sent = 0;  // bytes handed over in messages so far
    std::uint32_t *uses = nullptr;  // use count of the target memory; nullptr: the put has no bytes
    // The parts of a batch, back to back. The capacity is kept from put to put.
    std::vector<std::byte> batch;

    void clear() noexcept {
        put = {};
        sent = 0;
        uses = nullptr;
        batch.clear();
    }
    bool is_batch() const noexcept { return !batch.empty(); }
    std::uint64_t bytes() const noexcept { return is_batch() ? batch.size() : put.bytes; }
    const std::byte *from() const noexcept { return is_batch() ? batch.data() : put.from; }
};

}  // namespace vescomm::internal
