// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/kinds.h"

#include <algorithm>
#include <tuple>

namespace vescomm::planner {

std::vector<Kind> kinds_of(const Items &items) {
    const auto key = [&items](std::size_t i) {
        const Grid &grid = items.items[i].grid;
        return std::tuple(grid.elements(), grid.sub_matrix(), grid.block(),
                          items.items[i].alignment);
    };
    std::vector<std::size_t> alike(items.items.size());
    for (std::size_t i = 0; i < alike.size(); ++i) alike[i] = i;
    std::ranges::stable_sort(alike, std::ranges::less(), key);

    std::vector<Kind> kinds;
    for (std::size_t i = 0; i < alike.size(); ++i) {
        if (i == 0 || key(alike[i]) != key(alike[i - 1])) {
            kinds.push_back({items.items[alike[i]], {}});
        }
        kinds.back().items.push_back(alike[i]);
    }
    std::ranges::sort(kinds, {}, [](const Kind &kind) { return kind.items.front(); });
    return kinds;
}

}  // namespace vescomm::planner
