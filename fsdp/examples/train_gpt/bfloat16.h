// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The upper half of a float: its sign, its exponent and seven bits of its fraction.
#pragma once

#include <cstdint>

namespace train_gpt {

// A type of its own, so that templates can tell it from an integer.
enum class bfloat16 : std::uint16_t {};

}  // namespace train_gpt
