// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "layout/quoted.h"

#include <fmt/format.h>

#include <algorithm>

namespace vescomm::internal {

std::string quoted(std::string_view name) {
    constexpr std::size_t max_size = 120;
    std::size_t end = std::min(name.size(), max_size);
    // Do not cut inside a UTF-8 character.
    while (end < name.size() && end > 0 && (name[end] & 0xc0) == 0x80) --end;
    std::string text = "\"";
    for (const char character : name.substr(0, end)) {
        const auto byte = static_cast<unsigned char>(character);
        if (byte < 0x20 || byte == 0x7f) {
            text += fmt::format("\\x{:02x}", byte);
        } else {
            text += character;
        }
    }
    return text + (name.size() > max_size ? "...\"" : "\"");
}

}  // namespace vescomm::internal
