// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm::formats {

// Returns text for messages: in quotes, on one line, and shortened, but not within a character of
// UTF-8. Names and files may have any bytes and any length.
std::string quoted_text(std::string_view text);

}  // namespace vescomm::formats
