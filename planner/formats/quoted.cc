// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/formats/quoted.h"

#include <fmt/format.h>

#include <algorithm>

namespace vescomm::formats {

std::string quoted_text(std::string_view text) {
    constexpr std::size_t longest = 120;
    std::size_t end = std::min(text.size(), longest);
    while (end < text.size() && end > 0 && (text[end] & 0xc0) == 0x80) --end;
    std::string result = "\"";
    for (const char letter : text.substr(0, end)) {
        const auto byte = static_cast<unsigned char>(letter);
        if (byte < 0x20 || byte == 0x7f) result += fmt::format("\\x{:02x}", byte);
        else result += letter;
    }
    return result + (text.size() > longest ? "...\"" : "\"");
}

}  // namespace vescomm::formats
