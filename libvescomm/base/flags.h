// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vescomm::internal {

// The map of the flags of a channel. Eight counters fill a cache line. A rank has one set of flags
// for its node, and one for each rank of another node, so a number may be used for both.
//
//                  for the node        for a rank of another node
//     0 to 4       the algorithm       the algorithm; 2 of a message: tag_flag
//     5            signature_flag      signature_flag
//     6            release_flag        advertised_flag
//     7            gate_flag           -
inline constexpr std::uint32_t flags_per_channel = 8;
// Flags of an algorithm are 0 to algorithm_flags - 1.
inline constexpr std::uint32_t algorithm_flags = 5;

enum ReservedFlag : std::uint32_t {
    // The tag of a point-to-point message, raised before its signature. The lower half of the value
    // is the tag; the upper half is that of the signal raised with it. Not raised: the tag is 0.
    // Messages use no other flag of an algorithm with this number.
    tag_flag = 2,
    // The signature of the call of a rank, raised with bytes. The lower half of the value is the
    // signature; the upper half is that of the signal raised with it, which holds the number of the
    // run.
    signature_flag = 5,
    // The same for a signal without bytes, which may belong to a later run before the receiver has
    // read the bytes; and for a signature that a rank advertises while it waits.
    advertised_flag = 6,
    // SlotSequences::released(), on the last channel of the staging buffer.
    release_flag = 6,
    // Raised between the two schedules of join_schedules().
    gate_flag = 7,
    // No flag of the channel: it lies before the first byte of inline data, in the same cache line.
    // A schedule raises it at most once, for the node, after all writes to its own inline data.
    inline_flag = flags_per_channel,
    // No flag of the channel either: one lies before each pair area of the staging buffer
    // (PairAreas), in the same cache line. A schedule raises all of them at once, for the node,
    // after all writes to its own pair areas.
    pair_flag,
    flags_of_schedules,
};

// True for flags that lie beside data in the staging buffer, not in a channel.
constexpr bool lies_beside_data(std::uint32_t flag) {
    return flag >= inline_flag;
}

// The flag that carries the signature of a put with `bytes`.
constexpr std::uint32_t signature_flag_for(std::uint64_t bytes) {
    return bytes > 0 ? signature_flag : advertised_flag;
}

namespace flag_map {

inline constexpr std::uint32_t for_node[] = {signature_flag, release_flag, gate_flag};
inline constexpr std::uint32_t for_other_nodes[] = {signature_flag, advertised_flag};

// True if no flag has two meanings, and none belongs to algorithms or to no channel.
template <std::size_t count>
constexpr bool is_sound(const std::uint32_t (&flags)[count]) {
    for (std::size_t i = 0; i < count; ++i) {
        if (flags[i] < algorithm_flags || flags[i] >= flags_per_channel) return false;
        for (std::size_t j = 0; j < i; ++j)
            if (flags[i] == flags[j]) return false;
    }
    return true;
}
static_assert(is_sound(for_node) && is_sound(for_other_nodes));
static_assert(inline_flag >= flags_per_channel);

}  // namespace flag_map

}  // namespace vescomm::internal
