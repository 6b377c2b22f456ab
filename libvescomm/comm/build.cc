// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/build.h"

#include "vescomm/vescomm.h"

// Made by build_hash.py: VESCOMM_BUILD_HASH.
#include "build_hash.h"

namespace vescomm::internal {

std::string build_name() {
    return std::string(vescomm_get_version()) + ", build " VESCOMM_BUILD_HASH;
}

}  // namespace vescomm::internal
