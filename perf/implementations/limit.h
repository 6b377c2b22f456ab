// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/implementations/limit_kernels.h"
#include "perf/worker/serve.h"

namespace vescomm::perf {

// What the machine allows: ranks of one node copy and add in shared memory, and tell one another by
// counters. No checks, no choice of algorithms, nobody who may fail. Between hosts, with one rank
// on each, they send and receive over TCP.
std::unique_ptr<Implementation> make_limit(const Worker &worker);
std::unique_ptr<Implementation> make_limit_between_hosts(const Worker &worker);

// For the instruction set of this processor.
const limit_kernels_t &fastest_kernels();

}  // namespace vescomm::perf
