// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// As libvescomm/precompiled/standard.h, for tests.
#include <gtest/gtest.h>

#include "../../libvescomm/precompiled/standard.h"
