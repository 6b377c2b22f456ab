// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "comm.h"

namespace vescomm::python {

void define_buffer(nanobind::module_ &module, nanobind::class_<Comm> &comm);

}  // namespace vescomm::python
