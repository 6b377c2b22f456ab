// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_placement.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace vescomm::internal {
namespace {

constexpr std::uint64_t max_bytes = std::uint64_t{1} << 62;

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result) || result > max_bytes)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "the layout needs " + std::to_string(a) + " times " + std::to_string(b) +
                        " bytes of device memory; at most 2^62 bytes are possible");
    return result;
}

// Bytes that a packed buffer adds behind its elements, so that its shards have a constant distance:
// a page, or an eighth of the buffer.
std::uint64_t max_space(std::uint64_t bytes) {
    return std::max<std::uint64_t>(4096, bytes / 8);
}

}  // namespace

DevicePlacement::DevicePlacement(const Layout &layout, std::size_t element, Kind kind)
    : element_(element),
      kind_(kind),
      sum_(product(static_cast<std::uint64_t>(layout.elements()), element)),
      largest_(static_cast<std::uint64_t>(layout.largest_shard()) * element) {
    const auto all = static_cast<std::uint64_t>(layout.ranks());
    bool constant = true;
    for (std::uint64_t rank = 0; rank < all; ++rank) {
        const Layout::Shard shard = layout.shard(static_cast<int>(rank));
        const std::uint64_t bytes = static_cast<std::uint64_t>(shard.elements()) * element;
        const std::uint64_t begin = strided() ? product(rank, device_aligned(largest_))
                                              : static_cast<std::uint64_t>(shard.begin) * element;
        shards_.push_back({begin, bytes});
        constant = constant && (bytes == 0 || begin == rank * largest_);
    }
    size_ = sum_;
    if (strided()) {
        stride_ = device_aligned(largest_);
        size_ = product(all, stride_);
    } else if (constant) {
        std::uint64_t whole = 0;
        if (__builtin_mul_overflow(all, largest_, &whole) ||
            whole - sum_ > (kind == Kind::packed ? max_space(sum_) : 0))
            return;
        stride_ = largest_;
        size_ = whole;
    }
}

std::vector<std::uint64_t> DevicePlacement::shard_bytes() const {
    std::vector<std::uint64_t> all;
    for (const Shard &shard : shards_) all.push_back(shard.bytes);
    return all;
}

std::optional<int> DevicePlacement::unaligned() const {
    for (int rank = 0; rank < ranks(); ++rank)
        if (bytes(rank) != 0 && begin(rank) % device_alignment != 0) return rank;
    return std::nullopt;
}

}  // namespace vescomm::internal
