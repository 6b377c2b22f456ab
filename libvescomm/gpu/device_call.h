// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "gpu/device_method.h"
#include "gpu/device_placement.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Names that the program has given to device buffers, by number.
using BufferNames = std::map<std::uint64_t, std::string>;

// A collective call on a device communicator: what must be the same on all ranks. A value.
struct DeviceCall {
    enum class Kind : std::uint8_t {
        all_reduce = 1,
        broadcast,
        all_gather_v,
        reduce_scatter_v,
        all_to_all_v,  // has a type only: see ExchangeCounts
        allocate,
        create_buffer,
        free,  // of memory or of a buffer
        split,
        end  // of the communicator: the last call
    };
    using Words = std::array<std::uint64_t, 7>;
    // The place of an array: in memory of the program, of which the ranks know nothing; in memory
    // of DeviceCommunicator::allocate(); or it is a device buffer.
    struct Place {
        enum class In : std::uint8_t { program, memory, buffer };
        In in = In::program;
        std::uint64_t number = 0;  // of the memory or buffer; the same on every rank
        std::uint64_t offset = 0;  // bytes within the memory

        bool operator==(const Place &) const = default;
    };

    Kind kind = Kind::all_reduce;
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;
    vescomm_op_t op = VESCOMM_SUM;  // reductions
    DeviceMethod method = DeviceMethod::rooted;  // ragged collectives
    std::int32_t root = 0;  // broadcasts
    std::uint64_t elements = 0;  // in the whole buffer
    std::uint64_t digest = 0;  // ragged collectives: digest of the sizes of all shards
    // The whole buffer of a ragged collective, the data of a broadcast, the output of an
    // all_reduce, what is freed. In memory of the program if there are no elements.
    Place data{};
    // The source of an all_reduce. Of a ragged collective that is one call of NCCL in place: the
    // shard of this rank, or the whole buffer if the shard is there.
    Place source{};

    void set_shards(const DevicePlacement &placement);
    // The call as another rank reads it.
    Words words() const;
    // Nothing if the words are those of no call.
    static std::optional<DeviceCall> from_words(const Words &words);
    bool operator==(const DeviceCall &) const = default;
    // "all_reduce of 10 f32 (sum)". `places`: with the places of its arrays.
    std::string text(const BufferNames &names, bool places = false) const;
};

// The elements that an exchange sends to each rank, and receives from each rank. Borrowed.
struct ExchangeCounts {
    std::span<const std::int64_t> sent, received;
};

// Those of one rank with another one.
struct ExchangePair {
    std::int64_t sent = 0, received = 0;
};

}  // namespace vescomm::internal
