// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/implementation.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

// The library through its collectives on arrays, as other libraries are called: at once, on memory
// of any kind; several tensors are a group. The communicator is the caller's.
std::unique_ptr<Implementation> make_arrays(Communicator &comm);

}  // namespace vescomm::perf
