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
        case DeviceCall::Kind::all_to_all_v:
            return "all_to_all_v";
        case DeviceCall::Kind::allocate:
            return "vescomm_gpu_malloc()";
        case DeviceCall::Kind::create_buffer:
            return "vescomm_gpu_buffer_create()";
        case DeviceCall::Kind::free:
            return "the free";
        case DeviceCall::Kind::split:
            return "vescomm_gpu_comm_split()";
        case DeviceCall::Kind::end:
            return "vescomm_gpu_comm_free()";
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

using Place = DeviceCall::Place;

constexpr int in_bits = 2;

std::uint64_t word_of(const Place &place) {
    return place.number << in_bits | static_cast<std::uint64_t>(place.in);
}

Place place_of(std::uint64_t word, std::uint64_t offset) {
    return {static_cast<Place::In>(word & ((1 << in_bits) - 1)), word >> in_bits, offset};
}

bool exists(const Place &place) {
    return place.in <= Place::In::buffer;
}

std::string text_of(const Place &place, const BufferNames &names) {
    switch (place.in) {
        case Place::In::memory:
            return fmt::format("byte {} of allocation {}", place.offset, place.number);
        case Place::In::buffer: {
            const auto named = names.find(place.number);
            return fmt::format("buffer {}{}", place.number,
                               named == names.end() ? "" : " \"" + named->second + "\"");
        }
        default:
            return "memory of the program";
    }
}

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
            elements,
            digest,
            word_of(data),
            data.offset,
            word_of(source),
            source.offset};
}

std::optional<DeviceCall> DeviceCall::from_words(const Words &words) {
    const auto byte = [&](int at) { return static_cast<int>(words[0] >> at & 0xff); };
    if (byte(0) < static_cast<int>(Kind::all_reduce) || byte(0) > static_cast<int>(Kind::end) ||
        byte(method_at) > static_cast<int>(DeviceMethod::copy_engine))
        return {};
    const Place data = place_of(words[3], words[4]), source = place_of(words[5], words[6]);
    if (!exists(data) || !exists(source)) return {};
    return DeviceCall{.kind = static_cast<Kind>(byte(0)),
                      .type = byte(type_at),
                      .op = byte(op_at),
                      .method = static_cast<DeviceMethod>(byte(method_at)),
                      .root = static_cast<std::int32_t>(words[0] >> root_at),
                      .elements = words[1],
                      .digest = words[2],
                      .data = data,
                      .source = source};
}

std::string DeviceCall::text(const BufferNames &names, bool places) const {
    if (kind == Kind::free) return "the free of " + text_of(data, names);
    if (kind == Kind::all_to_all_v) return "all_to_all_v of " + name_of_type(type);
    if (kind > Kind::all_to_all_v) return name_of(kind);
    std::string details;
    if (kind == Kind::broadcast) details = fmt::format("root {}", root);
    if (reduces(kind)) details = name_of_op(op);
    if (is_ragged(kind))
        details += fmt::format("{}sizes of shards {:05x}, {}", details.empty() ? "" : ", ",
                               digest & 0xfffff, internal::name_of(method));
    if (places) {
        details += (data.in == Place::In::memory ? ", at " : ", in ") + text_of(data, names);
        const bool has_source =
            kind == Kind::all_reduce || (is_ragged(kind) && is_one_call_in_place(method));
        if (has_source && source != data)
            details +=
                (kind == Kind::reduce_scatter_v ? ", to " : ", from ") + text_of(source, names);
    }
    return fmt::format("{} of {} {} ({})", name_of(kind), elements, name_of_type(type), details);
}

}  // namespace vescomm::internal
