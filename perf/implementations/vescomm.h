// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/implementation.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

// The library itself, through its public interface. The communicator is the caller's.
std::unique_ptr<Implementation> make_vescomm(Communicator &comm);

}  // namespace vescomm::perf
