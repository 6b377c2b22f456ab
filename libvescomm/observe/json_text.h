// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm {

// A text as JSON has it, with its quotation marks. Bytes that are not UTF-8 become U+FFFD. What is
// written of a failure is put together from this alone: nlohmann's values allocate in their
// destructors, and end the process when there is no memory.
std::string quoted_json(std::string_view text);

// A number as JSON has it; null for one that is not finite.
std::string json_number(double number);

}  // namespace vescomm
