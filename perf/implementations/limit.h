// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/implementations/limit_kernels.h"
#include "perf/worker/serve.h"

namespace vescomm::perf {

// Estimates the limit of the machine. Ranks of one node copy and add in shared memory and
// synchronise by counters. There are no checks, no choice of algorithms and no handling of
// failures. Between hosts, with one rank on each, ranks use TCP.
std::unique_ptr<Implementation> make_limit(const Worker &worker);
std::unique_ptr<Implementation> make_limit_between_hosts(const Worker &worker);

// Returns the kernels for the instruction set of this processor.
const limit_kernels_t &fastest_kernels();

}  // namespace vescomm::perf
