// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vescomm::internal {

// With several nodes, the executor leaves a lane after each copy or reduction of this many bytes of
// results or more: it continues with the other lanes, and polls the inter-node transports. Messages
// must not wait for a whole lane. The simulator does the same.
inline constexpr std::uint64_t min_long_bytes = 128 * 1024;

}  // namespace vescomm::internal
