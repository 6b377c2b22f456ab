// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// bfloat16: the upper half of a float, that is sign, exponent and seven bits of the fraction.
#pragma once

#include <cstdint>

namespace train_gpt {

// A distinct type, so that templates can distinguish it from an integer.
enum class bfloat16 : std::uint16_t {};

}  // namespace train_gpt
