// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/forwarded.h"

#include <algorithm>

namespace vescomm::internal {

std::int64_t largest_forwarded(const ArrayProblem &problem, std::int64_t places) {
    // 8 KiB of a slot (problem.h), as transports join in one message (transport/put_batch.h).
    return std::min(problem.staging.count / 512, problem.staging.count / 4 / places);
}

Extent beside_forwarded(const ArrayProblem &problem, std::int64_t places) {
    const std::int64_t taken = places * largest_forwarded(problem, places);
    return {problem.staging.begin + taken, problem.staging.count - taken};
}

bool is_forwarded(const ArrayProblem &problem, int from, int to, std::int64_t max_forwarded) {
    const Nodes &nodes = problem.nodes;
    if (max_forwarded == 0 || nodes.together(from, to)) return false;
    const int many_side = problem.collective == Collective::gather_v ? from : to;
    if (nodes.members(nodes.node_of(many_side)).size() == 1) return false;
    const std::int64_t count = problem.block(from, to);
    return count > 0 && count <= max_forwarded;
}

}  // namespace vescomm::internal
