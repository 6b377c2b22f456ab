// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"

namespace vescomm::internal {

// Makes an Error from errno: "<what>: <text of errno>". The status is OUT_OF_MEMORY for ENOMEM and
// ENOSPC, else SYSTEM.
inline Error system_error(const std::string &what) {
    const int code = errno;
    const bool memory = code == ENOMEM || code == ENOSPC;
    return Error(memory ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_SYSTEM,
                 what + ": " + std::generic_category().message(code));
}

}  // namespace vescomm::internal
