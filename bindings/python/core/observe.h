// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "comm.h"

namespace vescomm::python {

// Traces, the flight recorder, and the log.
void define_observe(nanobind::module_ &module, nanobind::class_<Comm> &comm);

}  // namespace vescomm::python
