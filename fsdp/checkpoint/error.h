// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fsdp/error.h"

namespace vescomm::fsdp::checkpoint {

// An error of a save, a load or an export.
struct Error : Failure {
    using Failure::Failure;
};

}  // namespace vescomm::fsdp::checkpoint
