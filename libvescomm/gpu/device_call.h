// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "gpu/device_method.h"
#include "gpu/device_placement.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// A collective on device memory: what must be the same on all ranks. A value.
struct DeviceCall {
    enum class Kind : std::uint8_t { all_reduce = 1, broadcast, all_gather_v, reduce_scatter_v };
    using Words = std::array<std::uint64_t, 3>;

    Kind kind = Kind::all_reduce;
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;
    vescomm_op_t op = VESCOMM_SUM;  // reductions
    DeviceMethod method = DeviceMethod::rooted;  // ragged collectives
    std::int32_t root = 0;  // broadcasts
    std::uint64_t elements = 0;  // in the whole buffer
    std::uint64_t digest = 0;  // ragged collectives: digest of the sizes of all shards

    void set_shards(const DevicePlacement &placement);
    // The call as another rank reads it.
    Words words() const;
    // Nothing if the words are those of no call.
    static std::optional<DeviceCall> from_words(const Words &words);
    bool operator==(const DeviceCall &) const = default;
    // "all_reduce of 10 f32 (sum)".
    std::string text() const;
};

}  // namespace vescomm::internal
