// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/serve.h"

namespace vescomm::perf {

// vescomm on device memory, through gpu.h.
std::unique_ptr<Implementation> make_vescomm_on_device(const Worker &worker);

}  // namespace vescomm::perf
