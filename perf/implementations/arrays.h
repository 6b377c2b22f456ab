// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/implementation.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

// vescomm through its collectives on arrays, as other libraries are used: blocking calls on any
// memory; several tensors are a group. The caller owns the communicator. `registered`: in memory of
// vescomm_malloc().
std::unique_ptr<Implementation> make_arrays(Communicator &comm, bool registered);

}  // namespace vescomm::perf
