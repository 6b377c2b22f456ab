// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm::internal {

// Quotes the name of a tensor for a sentence: names may have any bytes and any length, so control
// characters are escaped and long names are cut.
std::string quoted(std::string_view name);

}  // namespace vescomm::internal
