// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <string>
#include <system_error>

#include "base/error.h"

namespace vescomm {

// What the operating system said, as an Error: "<what failed>: <its reason>".
inline Error system_error(const std::string &what) {
    const int code = errno;
    const bool memory = code == ENOMEM || code == ENOSPC;
    return Error(memory ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_ERROR_SYSTEM,
                 what + ": " + std::generic_category().message(code));
}

}  // namespace vescomm
