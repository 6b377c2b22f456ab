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

std::vector<Part> parts_of(const Case &what) {
    std::vector<Part> parts;
    for (std::size_t tensor = 0; tensor + 1 < what.tensors.size(); ++tensor) {
        const std::int64_t first = what.tensors[tensor], end = what.tensors[tensor + 1];
        Part part{
            .first = first, .elements = end - first, .counts = {}, .begins = {}, .in_shard = {}};
        for (int rank = 0; rank < what.ranks(); ++rank) {
            const std::int64_t begin = std::clamp(what.cuts[rank], first, end);
            const std::int64_t count = std::clamp(what.cuts[rank + 1], first, end) - begin;
            part.counts.push_back(count);
            part.begins.push_back(begin);
            part.in_shard.push_back(count > 0 ? begin - what.cuts[rank] : 0);
        }
        parts.push_back(std::move(part));
    }
    return parts;
}

}  // namespace vescomm::perf
