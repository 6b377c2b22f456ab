// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vescomm {

// Bytes that are sent or read in one call: Linux passes so much on as one segment, and it is still
// in the cache when the other direction has had its turn.
inline constexpr std::size_t segment_bytes = 65'000;

// An encrypted record: its length, what is encrypted, its tag.
inline constexpr std::size_t record_head_bytes = 4;
inline constexpr std::size_t max_record_bytes = segment_bytes;

}  // namespace vescomm
