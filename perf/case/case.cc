// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/case/case.h"

#include <algorithm>

namespace vescomm::perf {

std::int64_t Case::largest_shard() const {
    std::int64_t largest = 0;
    for (int rank = 0; rank < ranks(); ++rank) largest = std::max(largest, shard(rank));
    return largest;
}

double Case::rho() const {
    if (elements() == 0) return 1;
    return static_cast<double>(largest_shard()) * ranks() / static_cast<double>(elements());
}

std::vector<std::vector<Extent>> split_by_tensor(const Case &what) {
    std::vector<std::vector<Extent>> parts;
    for (std::size_t tensor = 0; tensor + 1 < what.tensors.size(); ++tensor) {
        const auto inside = [&](std::int64_t cut) {
            return std::clamp(cut, what.tensors[tensor], what.tensors[tensor + 1]);
        };
        std::vector<Extent> of_ranks;
        of_ranks.reserve(static_cast<std::size_t>(what.ranks()));
        for (int rank = 0; rank < what.ranks(); ++rank)
            of_ranks.push_back({inside(what.cuts[rank]), inside(what.cuts[rank + 1])});
        parts.push_back(std::move(of_ranks));
    }
    return parts;
}

}  // namespace vescomm::perf
