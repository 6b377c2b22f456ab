// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::internal {

// Positions of tensors and shards in a fused buffer.
//
//     elements   0                                                          elements()
//     tensors    |  wq  |  wk  |..|        w1          |..|  norm  |.........|    . padding
//     cuts       0          1              2               3            4    5
//     shards     |  rank 0  |    rank 1    |    rank 2     |   rank 3   | 4  |
//
// A tensor is contiguous, so its gathered view is an ordinary dense array. Padding lies between
// tensors, never inside one. A cut inside a tensor lies on a block boundary: a multiple of `block`
// counted from the start of its sub-matrix. All numbers count elements, not bytes. A layout has no
// element type, so the f32 masters, the bf16 slab and the gradients of a unit share one layout.
//
// A value: immutable, checked by the constructor, comparable, printable. Equal layouts have equal
// hashes on every platform. A moved-from layout can only be assigned to or destroyed.
class Layout {
public:
    struct Tensor {
        std::string name;  // unique, not empty, no zero byte
        std::vector<std::int64_t> shape;  // row-major; {} is a scalar; an extent may be 0
        std::int64_t offset = 0;  // first element in the buffer
        std::int64_t block = 1;  // elements that stay on one rank
        // Number of leading dimensions. Each index of them has a sub-matrix with its own grid of
        // blocks. The last block of a sub-matrix may be short.
        std::int32_t batch_dimensions = 0;
        std::int64_t elements = 0;  // product of shape; computed by Layout, ignored as input

        bool operator==(const Tensor &) const = default;
    };

    // Elements [begin, end) of the buffer.
    struct Shard {
        std::int64_t begin = 0;
        std::int64_t end = 0;

        std::int64_t elements() const noexcept { return end - begin; }
        bool operator==(const Shard &) const = default;
    };

    // The part of one tensor that lies in one shard.
    struct Piece {
        std::size_t tensor = 0;  // index in tensors()
        std::int64_t first = 0;  // first element, counted within the tensor
        std::int64_t elements = 0;  // at least 1 in results of pieces()
        std::int64_t offset = 0;  // offset of the first element within the shard

        bool operator==(const Piece &) const = default;
    };

    // Checks all conditions above. Throws Error(VESCOMM_ERROR_INVALID_ARGUMENT) with a sentence
    // that names the tensor or the cut. `tensors` are in order of offset. `cuts` are ranks + 1
    // offsets, not decreasing, from 0 to `elements`. Cost: O(tensors log tensors + ranks).
    Layout(std::vector<Tensor> tensors, std::int64_t elements, std::vector<std::int64_t> cuts);

    // Makes a layout of one vector, "data", of which rank k owns counts[k] elements.
    static Layout from_counts(std::span<const std::int64_t> counts);

    std::span<const Tensor> tensors() const noexcept { return tensors_; }
    std::span<const std::int64_t> cuts() const noexcept { return cuts_; }
    std::int64_t elements() const noexcept { return cuts_.back(); }
    int ranks() const noexcept { return static_cast<int>(cuts_.size() - 1); }
    // Elements that belong to no tensor.
    std::int64_t padding() const noexcept { return padding_; }
    std::int64_t largest_shard() const noexcept { return largest_shard_; }
    // XXH3-64 of serialise().
    std::uint64_t hash() const noexcept { return hash_; }

    // `rank` in [0, ranks()).
    Shard shard(int rank) const noexcept;
    // All pieces in the shard of a rank, by offset. Cost: O(log tensors + pieces + empty tensors
    // between them).
    std::vector<Piece> pieces(int rank) const;
    // The part of one tensor that a rank owns; it has 0 elements if the rank owns none.
    Piece piece(std::size_t tensor, int rank) const noexcept;
    // The index of the tensor with this name. Cost: O(log tensors).
    std::optional<std::size_t> find(std::string_view name) const noexcept;

    // The canonical bytes of the layout. They are equal if and only if the layouts are equal, on
    // every platform.
    std::vector<std::byte> serialise() const;
    // Makes a layout from the bytes of serialise(). The bytes are not trusted: memory is bounded in
    // proportion to their number, and bytes that are not a layout throw Error(INVALID_ARGUMENT).
    static Layout parse(std::span<const std::byte> bytes);

    // A clause that explains a disagreement of two ranks, such as
    //     tensor "block.3.qkv" starts at 1024 here and at 2048 there
    // Empty if the layouts are equal.
    std::string first_difference(const Layout &there) const;

    bool operator==(const Layout &other) const noexcept;

private:
    std::vector<Tensor> tensors_;
    std::vector<std::int64_t> cuts_;
    std::vector<std::size_t> by_name_;  // indices of tensors_, sorted by name
    std::int64_t padding_ = 0;
    std::int64_t largest_shard_ = 0;
    std::uint64_t hash_ = 0;
};

// Describes a layout in several lines of text; long lists are truncated.
std::string to_string(const Layout &layout);
std::ostream &operator<<(std::ostream &stream, const Layout &layout);

}  // namespace vescomm::internal
