// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace vescomm::internal {

// Returns the known name nearest to a misspelt one; empty if none is near. Two names are near if
// they differ by a few changed, missing, added or swapped letters, or if one begins with the other.
std::string nearest(std::string_view given, std::span<const std::string> known);

}  // namespace vescomm::internal
