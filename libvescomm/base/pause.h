// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::internal {

// Between two looks at a flag: leaves the core, and the cache line of the flag, to others for some
// nanoseconds.
inline void pause_core() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace vescomm::internal
