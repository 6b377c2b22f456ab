// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arrays of NumPy with types that only their dtype names, such as those of ml_dtypes. The first
// array of a dtype is read by way of exceptions and the dtype's name, in microseconds; the dtype
// object identifies later ones.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "vescomm/vescomm.h"

namespace vescomm::python {

// Remembers the type of a dtype. The last few are kept.
void remember_dtype(nanobind::handle dtype, vescomm_type_t type);

// A contiguous array in the order of bytes of this machine.
struct KnownArray {
    void *data = nullptr;
    std::int64_t elements = 1;
    std::size_t element_bytes = 0;
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;
};

// Reads `array`, an object of the class numpy.ndarray. Returns nothing, without an exception, if
// its dtype is not remembered, it is not contiguous, or it is read-only and `output` is true.
std::optional<KnownArray> known_array(nanobind::handle array, bool output);

}  // namespace vescomm::python
