// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call_arguments.h"

#include <algorithm>
#include <string_view>

namespace vescomm::internal {

CallKey::CallKey(const CallArguments &arguments, int ranks)
    : arguments_(arguments),
      ranks_(static_cast<std::size_t>(ranks)),
      hash_(hash_of(arguments, ranks)) {
    for (const std::int64_t *list : arguments.lists)
        if (list != nullptr) numbers_.insert(numbers_.end(), list, list + ranks);
    if (arguments.algorithm != nullptr) algorithm_ = arguments.algorithm;
}

bool CallKey::equals(const CallArguments &arguments) const noexcept {
    const CallArguments &mine = arguments_;
    if (mine.source != arguments.source || mine.output != arguments.output ||
        mine.collective != arguments.collective || mine.count != arguments.count ||
        mine.type != arguments.type || mine.op != arguments.op || mine.root != arguments.root ||
        mine.factor != arguments.factor ||
        (mine.algorithm == nullptr) != (arguments.algorithm == nullptr))
        return false;
    const std::int64_t *numbers = numbers_.data();
    for (std::size_t i = 0; i < mine.lists.size(); ++i) {
        const std::int64_t *list = arguments.lists[i];
        if ((mine.lists[i] == nullptr) != (list == nullptr)) return false;
        if (list == nullptr) continue;
        for (std::size_t rank = 0; rank < ranks_; ++rank)
            if (list[rank] != numbers[rank]) return false;
        numbers += ranks_;
    }
    return arguments.algorithm == nullptr || std::string_view(arguments.algorithm) == algorithm_;
}

}  // namespace vescomm::internal
