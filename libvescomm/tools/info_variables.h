// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

namespace vescomm {

// Prints every variable, what it is set to, and what is wrong with the environment. Throws
// Error(INVALID_ARGUMENT) after that when a value is malformed.
void show_variables(const Environment &environment);

// The same table as it stands in docs/configuration.md.
void show_variables_as_markdown();

}  // namespace vescomm
