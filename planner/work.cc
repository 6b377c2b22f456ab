// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <algorithm>

#include "planner/owner.h"

namespace vescomm::planner {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr Wide max = Wide{1} << 90;  // work on one matrix; sums of these fit into Wide
constexpr Wide max_sum = Wide{1} << 61;

// Work of Muon's Newton-Schulz iteration. It multiplies the matrix with its transpose, short side
// outside, and the square results with each other and with the matrix.
Wide muon(std::int64_t rows, std::int64_t columns) {
    const auto shorter = static_cast<Wide>(std::min(rows, columns));
    const auto longer = static_cast<Wide>(std::max(rows, columns));
    const Wide square = shorter * shorter;
    const Wide sides = 2 * longer + shorter;
    return square > max / sides ? max : square * sides;
}

struct Matrices {
    std::int64_t count = 1;
    Wide work = 1;  // on each matrix
};

Matrices matrices_of(const Tensor &tensor, const Item &item, Work work) {
    const std::size_t batch = static_cast<std::size_t>(tensor.batch_dimensions);
    // Stacked vectors are too small to divide.
    if (tensor.shape.size() < batch + 2) return {1, static_cast<Wide>(item.elements())};
    std::int64_t elements = 1;
    for (std::size_t i = batch; i < tensor.shape.size(); ++i) elements *= tensor.shape[i];
    const std::int64_t rows = tensor.shape[batch];
    return {item.elements() / elements,
            work == Work::muon ? muon(rows, elements / rows) : static_cast<Wide>(elements)};
}

}  // namespace

std::vector<std::vector<Works>> works_of(const Groups &groups, Work work) {
    std::vector<std::vector<Matrices>> exact;
    Wide sum = 0;
    for (const Group &group : groups.groups) {
        exact.emplace_back();
        for (const Item &item : group.items.items) {
            const Matrices matrices = matrices_of(group.problem.tensors[item.tensor], item, work);
            exact.back().push_back(matrices);
            // A count of matrices is below 2^62. A sum beyond `max` need not be exact.
            const Wide count = static_cast<Wide>(matrices.count) * static_cast<Wide>(group.count());
            sum += std::min(matrices.work > max / count ? max : matrices.work * count, max);
        }
    }
    int shift = 0;
    while (sum >> shift > max_sum) ++shift;
    std::vector<std::vector<Works>> result;
    for (const std::vector<Matrices> &group : exact) {
        result.emplace_back();
        for (const Matrices &matrices : group) {
            const auto each = static_cast<std::int64_t>(matrices.work >> shift);
            result.back().push_back({matrices.count, std::max<std::int64_t>(each, 1)});
        }
    }
    return result;
}

}  // namespace vescomm::planner
