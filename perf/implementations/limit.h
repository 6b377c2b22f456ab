// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/serve.h"

namespace vescomm::perf {

// What the machine allows: ranks of one node copy and add in shared memory, and tell one another by
// counters. No checks, no choice of algorithms, no other nodes, nobody who may fail.
std::unique_ptr<Implementation> make_limit(const Worker &worker);

}  // namespace vescomm::perf
