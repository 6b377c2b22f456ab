// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedule/problem.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// CallArguments::count of a call with lists of counts. A call whose list is missing then differs
// from a call with one count for all ranks.
inline constexpr std::int64_t counts_in_lists = -1;

// The arguments of one call on arrays, as the caller gives them: unchecked.
struct CallArguments {
    Collective collective = Collective::barrier;
    vescomm_type_t type = 0;
    vescomm_op_t op = VESCOMM_SUM;
    int root = 0;
    std::int32_t tag = 0;
    const void *source = nullptr;
    const void *output = nullptr;
    std::int64_t count = 0;
    // Counts and offsets, each with one number for each rank; nullptr: not given.
    std::array<const std::int64_t *, 4> lists = {};
    double factor = 0;
    const char *algorithm = nullptr;
};

// A hash of the arguments. Equal arguments have equal hashes.
inline std::uint32_t hash_of(const CallArguments &arguments, int ranks) noexcept {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    std::uint64_t hash = static_cast<std::uint64_t>(arguments.collective) << 56 ^
                         static_cast<std::uint64_t>(arguments.type) << 48 ^
                         static_cast<std::uint64_t>(arguments.op) << 40 ^
                         static_cast<std::uint32_t>(arguments.root) ^
                         static_cast<std::uint64_t>(arguments.tag) << 16;
    const auto mix = [&hash](std::uint64_t more) {
        hash = (hash ^ more) * odd;
        hash ^= hash >> 32;
    };
    mix(reinterpret_cast<std::uintptr_t>(arguments.source));
    mix(reinterpret_cast<std::uintptr_t>(arguments.output));
    std::uint64_t numbers = static_cast<std::uint64_t>(arguments.count);
    for (const std::int64_t *list : arguments.lists)
        if (list != nullptr)
            numbers = numbers * 31 + static_cast<std::uint64_t>(list[0]) +
                      static_cast<std::uint64_t>(list[ranks - 1]);
    mix(numbers);
    return static_cast<std::uint32_t>(hash >> 32);
}

// A copy of the arguments of a call, and of the counts and offsets that they point to.
class CallKey {
public:
    // The arguments have been checked.
    CallKey(const CallArguments &arguments, int ranks);

    std::uint32_t hash() const noexcept { return hash_; }
    // True if a call with these arguments is the same call.
    bool equals(const CallArguments &arguments) const noexcept {
        if (!same_scalars(arguments)) return false;
        return (is_scalar_ && is_scalar(arguments)) || same_lists(arguments);
    }
    bool operator==(const CallKey &other) const noexcept {
        return same_scalars(other.arguments_) && same_given(other.arguments_) &&
               numbers_ == other.numbers_ && algorithm_ == other.algorithm_;
    }

private:
    // True: neither lists nor an algorithm are given.
    static bool is_scalar(const CallArguments &arguments) noexcept {
        std::uintptr_t given = reinterpret_cast<std::uintptr_t>(arguments.algorithm);
        for (const std::int64_t *list : arguments.lists)
            given |= reinterpret_cast<std::uintptr_t>(list);
        return given == 0;
    }
    // Compares all but `lists` and `algorithm`. Without branches: most calls are the expected ones.
    bool same_scalars(const CallArguments &other) const noexcept {
        const CallArguments &mine = arguments_;
        const auto differ = [](auto a, auto b) {
            return static_cast<std::uint64_t>(a) ^ static_cast<std::uint64_t>(b);
        };
        const auto apart = [](const void *a, const void *b) {
            return reinterpret_cast<std::uintptr_t>(a) ^ reinterpret_cast<std::uintptr_t>(b);
        };
        return (apart(mine.source, other.source) | apart(mine.output, other.output) |
                differ(mine.collective, other.collective) | differ(mine.type, other.type) |
                differ(mine.op, other.op) | differ(mine.root, other.root) |
                differ(mine.tag, other.tag) | differ(mine.count, other.count) |
                (std::bit_cast<std::uint64_t>(mine.factor) ^
                 std::bit_cast<std::uint64_t>(other.factor))) == 0;
    }
    // Compares which of `lists` and `algorithm` are given.
    bool same_given(const CallArguments &other) const noexcept;
    // Compares them, and what they point to.
    bool same_lists(const CallArguments &other) const noexcept;

    CallArguments arguments_;  // of `lists` and `algorithm` only whether they are given
    bool is_scalar_;
    std::size_t ranks_;
    std::uint32_t hash_;
    std::vector<std::int64_t> numbers_;  // of the lists that are given
    std::string algorithm_;
};

}  // namespace vescomm::internal
