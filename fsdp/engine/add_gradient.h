// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

// Writes a gradient of the trainer into the memory of the engine, or adds it, converting its type.
// A sum is computed in f32 and rounded once. Throws Failure for a type other than f32 and that of
// the memory.
void add_gradient(const void *from, vescomm_type_t type, std::size_t count, bool add, void *to,
                  vescomm_type_t to_type);

}  // namespace vescomm::fsdp
