// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace vescomm::fsdp {

std::uint64_t hash_of(const void *data, std::size_t bytes, std::uint64_t seed) {
    return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace vescomm::fsdp
