// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vescomm::internal {

inline constexpr std::size_t cache_line = 64;  // bytes

// Prefetches a cache line for writing. Does nothing if the address is not mapped.
inline void prefetch_to_write(const void *line) noexcept {
#if defined(__x86_64__)
    // __builtin_prefetch() would only prefetch for reading: PREFETCHW is newer than the x86-64
    // baseline. Older processors execute PREFETCHW as a no-op.
    asm volatile("prefetchw (%0)" : : "r"(line));
#else
    __builtin_prefetch(line, 1);
#endif
}

}  // namespace vescomm::internal
