// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "layout/layout.h"

namespace vescomm::internal {

// NCCL is fastest at multiples of this number of bytes.
inline constexpr std::uint64_t device_alignment = 16;

// Rounds up to a multiple of device_alignment.
constexpr std::uint64_t device_aligned(std::uint64_t bytes) {
    return (bytes + device_alignment - 1) / device_alignment * device_alignment;
}

// The places of the shards of a layout in device memory, in bytes from its beginning. A value.
//
//     packed    | shard 0 | shard 1     | s2 | shard 3 |      the elements of the layout
//     strided   | shard 0 ....| shard 1     | s2 .........| shard 3 ....|
//                             ^stride       ^2 stride     ^3 stride
//
// Strided shards begin at multiples of the largest one, rounded up to 16 bytes: one all-gather or
// reduce-scatter of equal counts moves them in place, and moves the gaps (....) too.
//
// Packed shards may have a constant distance too: those of equal size, and those of a division into
// equal shards of which the last ones are short or empty.
//
//     packed    | shard 0 | shard 1 | s2 |....|        the gap at the end is `space`
class DevicePlacement {
public:
    enum class Kind {
        memory,  // packed; the memory ends with the last element
        packed,  // packed; memory is added behind the last element if it is small
        strided,
    };

    // Throws INVALID_ARGUMENT if the layout has more than 2^62 bytes.
    DevicePlacement(const Layout &layout, std::size_t element, Kind kind);

    int ranks() const { return static_cast<int>(shards_.size()); }
    std::uint64_t element() const { return element_; }
    bool strided() const { return kind_ == Kind::strided; }
    std::uint64_t begin(int rank) const { return shards_[static_cast<std::size_t>(rank)].begin; }
    std::uint64_t bytes(int rank) const { return shards_[static_cast<std::size_t>(rank)].bytes; }
    std::vector<std::uint64_t> shard_bytes() const;
    // Bytes of all shards, and of the largest one.
    std::uint64_t sum() const { return sum_; }
    std::uint64_t largest() const { return largest_; }
    // Bytes of memory, with gaps.
    std::uint64_t size() const { return size_; }
    // Bytes between the beginnings of consecutive shards, with memory of this size behind each. 0:
    // the distance is not constant, or there is no such memory, or all shards are empty.
    std::uint64_t stride() const { return stride_; }
    // The first rank whose shard has elements and does not begin at a multiple of 16 bytes.
    std::optional<int> unaligned() const;

private:
    struct Shard {
        std::uint64_t begin = 0, bytes = 0;
    };

    std::vector<Shard> shards_;
    std::uint64_t element_ = 1;
    Kind kind_ = Kind::memory;
    std::uint64_t sum_ = 0, largest_ = 0, size_ = 0, stride_ = 0;
};

}  // namespace vescomm::internal
