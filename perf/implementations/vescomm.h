// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/implementation.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

// vescomm, through its public API. The caller owns the communicator.
std::unique_ptr<Implementation> make_vescomm(Communicator &comm);

}  // namespace vescomm::perf
