// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vescomm::internal {

// The elements [begin, begin + count) of a vector or of a region.
struct Extent {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    bool operator==(const Extent &) const = default;
};

}  // namespace vescomm::internal
