// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace vescomm::fsdp {

// Returns the caller's settings, which may come from an older header: members after its struct_size
// have the values of `defaults`.
template <typename Settings>
Settings read_settings(const void *settings, Settings defaults) noexcept {
    std::uint32_t size = 0;
    std::memcpy(&size, settings, sizeof size);
    std::memcpy(&defaults, settings, std::min<std::size_t>(size, sizeof defaults));
    return defaults;
}

}  // namespace vescomm::fsdp
