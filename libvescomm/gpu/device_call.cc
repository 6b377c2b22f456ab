// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_call.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <vector>

#include "base/types.h"

namespace vescomm::internal {

namespace {

const char *name_of(DeviceCall::Kind kind) {
    switch (kind) {
        case DeviceCall::Kind::all_reduce:
            return "all_reduce";
        case DeviceCall::Kind::broadcast:
            return "broadcast";
        case DeviceCall::Kind::all_gather_v:
            return "all_gather_v";
        case DeviceCall::Kind::reduce_scatter_v:
            return "reduce_scatter_v";
    }
    return "a call";
}

bool is_ragged(DeviceCall::Kind kind) {
    return kind == DeviceCall::Kind::all_gather_v || kind == DeviceCall::Kind::reduce_scatter_v;
}

bool reduces(DeviceCall::Kind kind) {
    return kind == DeviceCall::Kind::all_reduce || kind == DeviceCall::Kind::reduce_scatter_v;
}

// One byte each, from the lowest, and the root in the upper half.
constexpr int type_at = 8, op_at = 16, method_at = 24, root_at = 32;

}  // namespace

void DeviceCall::set_shards(const DevicePlacement &placement) {
    const std::vector<std::uint64_t> bytes = placement.shard_bytes();
    elements = placement.sum() / placement.element();
    digest = XXH3_64bits(bytes.data(), bytes.size() * sizeof bytes[0]);
}

DeviceCall::Words DeviceCall::words() const {
    const auto byte = [](auto value, int at) {
        return std::uint64_t{static_cast<std::uint8_t>(value)} << at;
    };
    return {byte(kind, 0) | byte(type, type_at) | byte(op, op_at) | byte(method, method_at) |
                std::uint64_t{static_cast<std::uint32_t>(root)} << root_at,
            elements, digest};
}

std::optional<DeviceCall> DeviceCall::from_words(const Words &words) {
    const auto byte = [&](int at) { return static_cast<int>(words[0] >> at & 0xff); };
    if (byte(0) < static_cast<int>(Kind::all_reduce) ||
        byte(0) > static_cast<int>(Kind::reduce_scatter_v) ||
        byte(method_at) > static_cast<int>(DeviceMethod::copy_engine))
        return {};
    return DeviceCall{.kind = static_cast<Kind>(byte(0)),
                      .type = byte(type_at),
                      .op = byte(op_at),
                      .method = static_cast<DeviceMethod>(byte(method_at)),
                      .root = static_cast<std::int32_t>(words[0] >> root_at),
                      .elements = words[1],
                      .digest = words[2]};
}

std::string DeviceCall::text() const {
    std::string details;
    if (kind == Kind::broadcast) details = fmt::format("root {}", root);
    if (reduces(kind)) details = name_of_op(op);
    if (is_ragged(kind))
        details += fmt::format("{}sizes of shards {:05x}, {}", details.empty() ? "" : ", ",
                               digest & 0xfffff, internal::name_of(method));
    return fmt::format("{} of {} {} ({})", name_of(kind), elements, name_of_type(type), details);
}

}  // namespace vescomm::internal
