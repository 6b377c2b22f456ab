// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vescomm::internal {

// Bytes sent or read per call. Linux passes this many on as one segment, and they are still in the
// cache after the other direction has been served.
inline constexpr std::size_t segment_bytes = 65'000;

// An encrypted record: its length, the encrypted bytes, the tag.
inline constexpr std::size_t record_head_bytes = 4;
inline constexpr std::size_t max_record_bytes = segment_bytes;

}  // namespace vescomm::internal
