// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vescomm::internal {

// Bytes that this process can still allocate: the minimum of the free memory of the machine and of
// the limits of the process's control groups (version 1 or 2). Page cache that can be dropped
// counts as free. `root`: folder that contains proc and sys, for tests.
std::uint64_t free_memory(const std::string &root = {});

}  // namespace vescomm::internal
