// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "perf/worker/serve.h"

namespace vescomm::perf {

// vescomm on device buffers. `method`: as in vescomm_gpu_comm_options_t; nullptr: vescomm chooses.
std::unique_ptr<Implementation> make_buffers_on_device(const char *method, const Worker &worker);

}  // namespace vescomm::perf
