// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

namespace vescomm::internal {

// Hands out parts of a range [0, size): the first free part that is large enough. A plain value.
class FreeRanges {
public:
    explicit FreeRanges(std::uint64_t size) {
        if (size > 0) free_[0] = size;
    }

    // The offset of `bytes` > 0; nullopt: no free part is large enough.
    std::optional<std::uint64_t> take(std::uint64_t bytes) {
        for (auto part = free_.begin(); part != free_.end(); ++part) {
            const auto [offset, size] = *part;
            if (size < bytes) continue;
            // Only this allocates: if it throws, nothing has changed.
            taken_.emplace(offset, bytes);
            auto node = free_.extract(part);
            if (size > bytes) {
                node.key() = offset + bytes;
                node.mapped() = size - bytes;
                free_.insert(std::move(node));
            }
            return offset;
        }
        return std::nullopt;
    }
    // Size of the part that begins at `offset`; 0: none was taken there.
    std::uint64_t size_at(std::uint64_t offset) const {
        const auto found = taken_.find(offset);
        return found == taken_.end() ? 0 : found->second;
    }
    // Gives back the part that begins at `offset`, which must have been taken. Allocates nothing.
    void give_back(std::uint64_t offset) noexcept {
        auto node = taken_.extract(offset);
        const auto next = free_.lower_bound(offset);
        if (next != free_.end() && next->first == offset + node.mapped()) {
            node.mapped() += next->second;
            free_.erase(next);
        }
        const auto after = free_.lower_bound(offset);
        if (after != free_.begin()) {
            const auto before = std::prev(after);
            if (before->first + before->second == offset) {
                before->second += node.mapped();
                return;
            }
        }
        free_.insert(std::move(node));
    }

private:
    std::map<std::uint64_t, std::uint64_t> free_;  // size by offset; no two parts touch
    std::map<std::uint64_t, std::uint64_t> taken_;  // size by offset
};

}  // namespace vescomm::internal
