// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_arguments.h"

namespace vescomm::internal {

CallKey::CallKey(const CallArguments &arguments, int ranks)
    : arguments_(arguments),
      ranks_(static_cast<std::size_t>(ranks)),
      hash_(hash_of(arguments, ranks)) {
    for (const std::int64_t *list : arguments.lists)
        if (list != nullptr) numbers_.insert(numbers_.end(), list, list + ranks);
    if (arguments.algorithm != nullptr) algorithm_ = arguments.algorithm;
}

bool CallKey::same_scalars(const CallArguments &other) const noexcept {
    const CallArguments &mine = arguments_;
    if (mine.source != other.source || mine.output != other.output ||
        mine.collective != other.collective || mine.count != other.count ||
        mine.type != other.type || mine.op != other.op || mine.root != other.root ||
        mine.tag != other.tag || mine.factor != other.factor ||
        (mine.algorithm == nullptr) != (other.algorithm == nullptr))
        return false;
    for (std::size_t i = 0; i < mine.lists.size(); ++i)
        if ((mine.lists[i] == nullptr) != (other.lists[i] == nullptr)) return false;
    return true;
}

bool CallKey::same_lists(const std::array<const std::int64_t *, 4> &lists) const noexcept {
    const std::int64_t *numbers = numbers_.data();
    for (const std::int64_t *list : lists) {
        if (list == nullptr) continue;
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            if (list[rank] != numbers[rank]) return false;
        numbers += ranks_;
    }
    return true;
}

}  // namespace vescomm::internal
