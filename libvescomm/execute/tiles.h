// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// Bytes of a tile. Arrays are processed tile by tile, so intermediate results stay in the
// first-level cache; a tile is a sixth of it.
inline constexpr std::size_t tile_bytes = 8192;

struct Tile {
    alignas(64) std::byte bytes[tile_bytes];
};

inline void *element(void *base, vescomm_type_t type, std::size_t i) noexcept {
    return static_cast<std::byte *>(base) + i * vescomm_type_get_bytes(type);
}

inline const void *element(const void *base, vescomm_type_t type, std::size_t i) noexcept {
    return static_cast<const std::byte *>(base) + i * vescomm_type_get_bytes(type);
}

// Orders stores that bypass the caches before later stores of this thread.
inline void fence_streams() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_sfence();
#endif
}

}  // namespace vescomm::internal
