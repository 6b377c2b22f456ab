// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Arguments that are arrays of any package.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "integer.h"
#include "vescomm/vescomm.h"

namespace vescomm::python {

// An array of a caller. It stays alive and at its address as long as the argument: an import locks
// arrays that can be resized, except tensors of torch, which have no lock.
struct Argument {
    nanobind::object owner;
    nanobind::ndarray<nanobind::ro> readable;
    nanobind::ndarray<> writable;
    void *data = nullptr;
    std::int64_t elements = 0;
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;

    Integer address() const noexcept { return {reinterpret_cast<std::int64_t>(data)}; }
};

// The arrays of a request.
using Arguments = std::vector<Argument>;

// An explicit type of elements, for arrays of other packages that cannot name it.
using TypeArgument = std::optional<ElementType>;

// Reads an array. Raises an exception if it is not contiguous, not in host memory, or has a type
// that vescomm has not; it never copies. `name`: of the parameter, for the sentence.
Argument read_source(nanobind::handle array, const char *name, const TypeArgument &type);
// The same for an array that is written: refuses read-only and immutable ones, too.
Argument read_output(nanobind::handle array, const char *name, const TypeArgument &type);

}  // namespace vescomm::python
