// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vescomm::fsdp {

// XXH3-64.
std::uint64_t hash_of(const void *data, std::size_t bytes, std::uint64_t seed = 0);

}  // namespace vescomm::fsdp
