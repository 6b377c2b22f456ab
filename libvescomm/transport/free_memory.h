// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vescomm {

// Bytes that this process may still take: the least of what the machine has and what the control
// groups (version 1 or 2) of the process allow, page cache that can be dropped counted as free.
// Tests put /proc and /sys below another folder, `root`.
std::uint64_t free_memory(const std::string &root = {});

}  // namespace vescomm
