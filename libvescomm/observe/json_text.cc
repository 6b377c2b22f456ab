// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/json_text.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

namespace vescomm::internal {

namespace {

// Size in bytes of the UTF-8 character at the beginning of `text`; 0 if it is not well-formed.
// Source: the Unicode Standard, table "Well-Formed UTF-8 Byte Sequences".
std::size_t character_bytes(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char first = byte(0);
    if (first < 0x80) return 1;
    std::size_t size = 0;
    unsigned char min = 0x80, max = 0xbf;  // of the second byte
    if (first >= 0xc2 && first <= 0xdf) size = 2;
    if (first >= 0xe0 && first <= 0xef) size = 3;
    if (first >= 0xf0 && first <= 0xf4) size = 4;
    if (first == 0xe0) min = 0xa0;
    if (first == 0xed) max = 0x9f;
    if (first == 0xf0) min = 0x90;
    if (first == 0xf4) max = 0x8f;
    if (size == 0 || text.size() < size) return 0;
    if (byte(1) < min || byte(1) > max) return 0;
    for (std::size_t i = 2; i < size; ++i)
        if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
    return size;
}

}  // namespace

std::string quoted_json(std::string_view text) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string quoted = "\"";
    while (!text.empty()) {
        const std::size_t size = character_bytes(text);
        const char first = text[0];
        if (size == 0) {
            quoted += "\xef\xbf\xbd";
        } else if (first == '"' || first == '\\') {
            quoted += '\\';
            quoted += first;
        } else if (static_cast<unsigned char>(first) < 0x20) {
            quoted += "\\u00";
            quoted += digits[first >> 4];
            quoted += digits[first & 15];
        } else {
            quoted += text.substr(0, size);
        }
        text.remove_prefix(size == 0 ? 1 : size);
    }
    return quoted + '"';
}

std::string json_number(double number) {
    return std::isfinite(number) ? fmt::format("{}", number) : "null";
}

}  // namespace vescomm::internal
