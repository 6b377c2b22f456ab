// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks of the arguments of kernels. They throw INVALID_ARGUMENT; `function` is the one that the
// program has called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/device_arguments.h"
#include "gpu/device_kernels.h"

namespace vescomm::internal::device {

// Returns the number of elements of all pieces.
std::int64_t checked_pieces(const char *function, Pieces pieces, bool has_source);
void check_address(const char *function, const char *name, const void *address,
                   std::size_t alignment);
void check_float(const char *function, vescomm_type_t type);
void check_small_float(const char *function, vescomm_type_t type,
                       const std::string &name = "the type");
void check_finite(const char *function, const char *name, double value);

}  // namespace vescomm::internal::device
