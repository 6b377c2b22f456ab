// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

namespace vescomm::internal {

// Prints every variable, its value, and the mistakes of the environment. Afterwards throws
// Error(INVALID_ARGUMENT) if a value is malformed.
void show_variables(const Environment &environment);

// Prints all variables as the tables of docs/configuration.md.
void show_variables_as_markdown();

}  // namespace vescomm::internal
