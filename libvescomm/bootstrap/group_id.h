// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bootstrap/wire.h"

namespace vescomm::internal {

// Identifies one group of processes within a session: one communicator. All members compute it from
// the same inputs, so no rank assigns numbers.
struct GroupId {
    std::uint64_t high = 0;
    std::uint64_t low = 0;

    auto operator<=>(const GroupId &) const = default;
};

// Stands for the whole session where a message concerns no single group.
inline constexpr GroupId whole_session{};

inline void put_group(std::string &to, const GroupId &id) {
    put_number(to, id.high);
    put_number(to, id.low);
}

inline GroupId get_group(WireReader &reader) {
    GroupId id;
    id.high = reader.number<std::uint64_t>();
    id.low = reader.number<std::uint64_t>();
    return id;
}

// The first 16 bytes of a hash of the parent and of words that differ between its children.
GroupId derive_group(const GroupId &parent, std::string_view words);

}  // namespace vescomm::internal
