// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_arguments.h"

namespace vescomm::internal {

CallKey::CallKey(const CallArguments &arguments, int ranks)
    : arguments_(arguments),
      is_scalar_(is_scalar(arguments)),
      ranks_(static_cast<std::size_t>(ranks)),
      hash_(hash_of(arguments, ranks)) {
    for (const std::int64_t *list : arguments.lists)
        if (list != nullptr) numbers_.insert(numbers_.end(), list, list + ranks);
    if (arguments.algorithm != nullptr) algorithm_ = arguments.algorithm;
}

bool CallKey::same_given(const CallArguments &other) const noexcept {
    const CallArguments &mine = arguments_;
    for (std::size_t i = 0; i < mine.lists.size(); ++i)
        if ((mine.lists[i] == nullptr) != (other.lists[i] == nullptr)) return false;
    return (mine.algorithm == nullptr) == (other.algorithm == nullptr);
}

bool CallKey::same_lists(const CallArguments &other) const noexcept {
    if (!same_given(other)) return false;
    const std::int64_t *numbers = numbers_.data();
    for (const std::int64_t *list : other.lists) {
        if (list == nullptr) continue;
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            if (list[rank] != numbers[rank]) return false;
        numbers += ranks_;
    }
    return other.algorithm == nullptr || other.algorithm == algorithm_;
}

}  // namespace vescomm::internal
