// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace vescomm {

// The known name that was probably meant by a misspelt one; empty when none is near. Near is what a
// few changed, missing, added or exchanged letters make, or an end that was left out or added.
std::string nearest(std::string_view given, std::span<const std::string> known);

}  // namespace vescomm
