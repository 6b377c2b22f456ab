// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The settings of ncclConfig_t, by their names there, as programs pass them through:
// "cgaClusterSize=4,netName=IB".
#pragma once

#include <string>

#include "gpu/nccl_functions.h"

namespace vescomm::internal {

// Throws INVALID_ARGUMENT, which begins with `function`, for a text that is no list of settings,
// and for settings that vescomm sets.
void check_nccl_settings(const char *function, const std::string &settings);

// The configuration for a version of NCCL. `settings`: checked. Throws UNSUPPORTED for a setting
// that the version does not have.
nccl::Config make_nccl_config(const std::string &settings, int nccl_version);

}  // namespace vescomm::internal
