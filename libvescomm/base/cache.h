// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm {

// Has a line of cache brought here to be written, while something else is done. Nothing happens
// when the address is not mapped.
inline void prefetch_to_write(const void *line) noexcept {
#if defined(__x86_64__)
    // The builtin would only ask to read: its instruction to write is newer than the baseline,
    // where processors without it take it for none.
    asm volatile("prefetchw (%0)" : : "r"(line));
#else
    __builtin_prefetch(line, 1);
#endif
}

}  // namespace vescomm
