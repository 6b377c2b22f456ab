// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Types of elements, in vescomm, DLPack, NumPy and the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm::python {

// The type of an array of DLPack. 0: vescomm has no such type.
vescomm_type_t type_of(nanobind::dlpack::dtype type) noexcept;
nanobind::dlpack::dtype dlpack_of(vescomm_type_t type) noexcept;

// The type of a dtype of NumPy, by its name: also those of ml_dtypes. 0: vescomm has no such type.
vescomm_type_t type_of(std::string_view name) noexcept;

// Format of the buffer protocol. nullptr: it has none for this type.
const char *format_of(vescomm_type_t type) noexcept;

// Name of a type, as in vescomm.Type.
const char *name_of(vescomm_type_t type) noexcept;

// The member of vescomm.Type.
nanobind::object to_python(vescomm_type_t type);

}  // namespace vescomm::python
