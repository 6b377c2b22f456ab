// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm::internal {

// Returns the text as a JSON string, with quotation marks. Bytes that are not UTF-8 become U+FFFD.
// Failure reports use only these functions: values of nlohmann::json allocate in their destructors,
// and end the process when there is no memory.
std::string quoted_json(std::string_view text);

// Returns the number as JSON; null if it is not finite.
std::string json_number(double number);

}  // namespace vescomm::internal
