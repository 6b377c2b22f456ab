// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// float16: IEEE 754 binary16, that is sign, five bits of exponent and ten bits of the fraction.
#pragma once

#include <cstdint>

namespace train_gpt {

// A distinct type, so that templates can distinguish it from an integer.
enum class float16 : std::uint16_t {};

}  // namespace train_gpt
