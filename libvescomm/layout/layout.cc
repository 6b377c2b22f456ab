// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up, except shard(), which is per operation.
#include "layout/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>
#include <ostream>

#include "base/error.h"
#include "layout/quoted.h"

namespace vescomm::internal {
namespace {

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                fmt::format(format, std::forward<Values>(values)...));
}

// Product of extents >= 0, or nullopt if it overflows int64. If any extent is 0 the product is 0,
// even if other extents would overflow, so the order of the extents does not matter.
std::optional<std::int64_t> product(std::span<const std::int64_t> extents) {
    if (std::ranges::find(extents, 0) != extents.end()) return 0;
    std::int64_t result = 1;
    for (const std::int64_t extent : extents) {
        if (__builtin_mul_overflow(result, extent, &result)) return std::nullopt;
    }
    return result;
}

// Elements of one sub-matrix: the part of a tensor with its own grid of blocks. `tensor` has been
// checked and is not empty, so the product does not overflow.
std::int64_t sub_matrix_elements(const Layout::Tensor &tensor) {
    return *product(std::span(tensor.shape).subspan(tensor.batch_dimensions));
}

// Checks one tensor on its own, and sets its number of elements.
void check_tensor(Layout::Tensor &tensor, std::size_t index, std::int64_t elements) {
    if (tensor.name.empty()) refuse("tensor {} has no name; give every tensor a unique one", index);
    const std::string name = quoted(tensor.name);
    if (tensor.name.find('\0') != std::string::npos) {
        refuse("the name of tensor {}, {}, contains a zero byte; C could not read it", index, name);
    }
    const std::size_t max_dimensions = std::numeric_limits<std::int32_t>::max();
    if (tensor.shape.size() > max_dimensions) {
        refuse("tensor {} has {} dimensions; at most {} are possible", name, tensor.shape.size(),
               max_dimensions);
    }
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
        if (tensor.shape[i] < 0) {
            refuse("extent {} of tensor {} is {}; extents must be at least 0", i, name,
                   tensor.shape[i]);
        }
    }
    const auto count = product(tensor.shape);
    if (!count) {
        refuse("tensor {} of shape [{}] has more elements than a 64-bit integer can count", name,
               fmt::join(tensor.shape, ", "));
    }
    tensor.elements = *count;
    if (tensor.block < 1) {
        refuse("the block of tensor {} is {} elements; it must be at least 1 (1: cut anywhere)",
               name, tensor.block);
    }
    if (tensor.batch_dimensions < 0 ||
        static_cast<std::size_t>(tensor.batch_dimensions) > tensor.shape.size()) {
        refuse("tensor {} has {} batch dimensions; with {} dimensions they must be in [0, {}]",
               name, tensor.batch_dimensions, tensor.shape.size(), tensor.shape.size());
    }
    if (tensor.offset < 0 || tensor.offset > elements ||
        tensor.elements > elements - tensor.offset) {
        refuse(
            "tensor {} has {} elements from offset {}, outside the buffer's [0, {}]; move it or "
            "enlarge the buffer",
            name, tensor.elements, tensor.offset, elements);
    }
}

void check_order(const std::vector<Layout::Tensor> &tensors) {
    for (std::size_t i = 1; i < tensors.size(); ++i) {
        const Layout::Tensor &before = tensors[i - 1];
        const Layout::Tensor &tensor = tensors[i];
        if (tensor.offset < before.offset) {
            refuse(
                "tensor {} at offset {} comes after tensor {} at offset {}; give tensors in order "
                "of offset",
                quoted(tensor.name), tensor.offset, quoted(before.name), before.offset);
        }
        if (tensor.offset < before.offset + before.elements) {
            refuse("tensor {} at offset {} overlaps tensor {}, which ends at {}",
                   quoted(tensor.name), tensor.offset, quoted(before.name),
                   before.offset + before.elements);
        }
    }
}

std::vector<std::size_t> sorted_by_name(const std::vector<Layout::Tensor> &tensors) {
    std::vector<std::size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, [&tensors](std::size_t a, std::size_t b) {
        const int comparison = tensors[a].name.compare(tensors[b].name);
        return comparison != 0 ? comparison < 0 : a < b;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
        if (tensors[order[i - 1]].name == tensors[order[i]].name) {
            refuse("tensors {} and {} are both named {}; names must be unique", order[i - 1],
                   order[i], quoted(tensors[order[i]].name));
        }
    }
    return order;
}

void check_cuts(const std::vector<std::int64_t> &cuts, std::int64_t elements) {
    if (elements < 0) refuse("a buffer of {} elements is impossible; give at least 0", elements);
    if (cuts.size() < 2) {
        refuse("a layout needs ranks + 1 cuts and at least 1 rank, and there are {} cuts",
               cuts.size());
    }
    const std::size_t max_ranks = std::numeric_limits<std::int32_t>::max();
    if (cuts.size() - 1 > max_ranks) {
        refuse("a layout for {} ranks is impossible; at most {} are", cuts.size() - 1, max_ranks);
    }
    if (cuts.front() != 0) refuse("cut 0 is at {}; the first cut must be at 0", cuts.front());
    for (std::size_t i = 1; i < cuts.size(); ++i) {
        if (cuts[i] < cuts[i - 1]) {
            refuse("cut {} at {} lies before cut {} at {}; cuts must not decrease", i, cuts[i],
                   i - 1, cuts[i - 1]);
        }
    }
    if (cuts.back() != elements) {
        refuse("the last cut, {}, is at {}; it must be at the end of the buffer, {}",
               cuts.size() - 1, cuts.back(), elements);
    }
}

// Checks that every cut inside a tensor lies on a block boundary. Cuts and tensors are sorted, so
// one pass over both suffices.
void check_blocks(const std::vector<Layout::Tensor> &tensors,
                  const std::vector<std::int64_t> &cuts) {
    std::size_t rank = 0;
    for (const Layout::Tensor &tensor : tensors) {
        const std::int64_t end = tensor.offset + tensor.elements;
        while (rank < cuts.size() && cuts[rank] <= tensor.offset) ++rank;
        if (rank == cuts.size() || cuts[rank] >= end) continue;
        const std::int64_t sub_matrix = sub_matrix_elements(tensor);
        for (; rank < cuts.size() && cuts[rank] < end; ++rank) {
            const std::int64_t within = (cuts[rank] - tensor.offset) % sub_matrix;
            if (within % tensor.block == 0) continue;
            const std::int64_t floor = within - within % tensor.block;
            const std::int64_t next =
                sub_matrix - floor > tensor.block ? floor + tensor.block : sub_matrix;
            const std::int64_t start = cuts[rank] - within;
            refuse(
                "cut {} at {} splits a block of tensor {}, which starts at {} and has blocks of "
                "{} elements; move the cut to {} or {}",
                rank, cuts[rank], quoted(tensor.name), tensor.offset, tensor.block, start + floor,
                start + next);
        }
    }
}

}  // namespace

Layout::Layout(std::vector<Tensor> tensors, std::int64_t elements, std::vector<std::int64_t> cuts)
    : tensors_(std::move(tensors)), cuts_(std::move(cuts)) {
    check_cuts(cuts_, elements);
    padding_ = elements;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        check_tensor(tensors_[i], i, elements);
    }
    by_name_ = sorted_by_name(tensors_);
    check_order(tensors_);
    check_blocks(tensors_, cuts_);
    for (const Tensor &tensor : tensors_) padding_ -= tensor.elements;
    for (int rank = 0; rank < ranks(); ++rank) {
        largest_shard_ = std::max(largest_shard_, shard(rank).elements());
    }
    const std::vector<std::byte> bytes = serialise();
    hash_ = XXH3_64bits(bytes.data(), bytes.size());
}

Layout Layout::from_counts(std::span<const std::int64_t> counts) {
    std::vector<std::int64_t> cuts = {0};
    cuts.reserve(counts.size() + 1);
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        if (counts[rank] < 0) {
            refuse("the count of rank {} is {}; counts must be at least 0", rank, counts[rank]);
        }
        std::int64_t end = 0;
        if (__builtin_add_overflow(cuts.back(), counts[rank], &end)) {
            refuse("the counts of ranks 0 to {} add up to more than a 64-bit integer can count",
                   rank);
        }
        cuts.push_back(end);
    }
    const std::int64_t elements = cuts.back();
    return Layout({{.name = "data", .shape = {elements}}}, elements, std::move(cuts));
}

Layout::Shard Layout::shard(int rank) const noexcept {
    assert(rank >= 0 && rank < ranks());
    const auto index = static_cast<std::size_t>(rank);
    return {cuts_[index], cuts_[index + 1]};
}

Layout::Piece Layout::piece(std::size_t tensor, int rank) const noexcept {
    const Shard mine = shard(rank);
    const Tensor &all = tensors_[tensor];
    const std::int64_t begin = std::max(mine.begin, all.offset);
    const std::int64_t end = std::min(mine.end, all.offset + all.elements);
    if (begin >= end) return {tensor, 0, 0, 0};
    return {tensor, begin - all.offset, end - begin, begin - mine.begin};
}

std::vector<Layout::Piece> Layout::pieces(int rank) const {
    const Shard mine = shard(rank);
    // Tensors are sorted by their end, too: offsets do not decrease, and tensors do not overlap.
    auto tensor = std::ranges::upper_bound(tensors_, mine.begin, {},
                                           [](const Tensor &t) { return t.offset + t.elements; });
    std::vector<Piece> result;
    for (; tensor != tensors_.end() && tensor->offset < mine.end; ++tensor) {
        const Piece found = piece(static_cast<std::size_t>(tensor - tensors_.begin()), rank);
        if (found.elements > 0) result.push_back(found);
    }
    return result;
}

std::optional<std::size_t> Layout::find(std::string_view name) const noexcept {
    const auto name_of = [this](std::size_t i) -> std::string_view { return tensors_[i].name; };
    const auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
    if (found == by_name_.end() || name_of(*found) != name) return std::nullopt;
    return *found;
}

bool Layout::operator==(const Layout &other) const noexcept {
    return hash_ == other.hash_ && cuts_ == other.cuts_ && tensors_ == other.tensors_;
}

std::string Layout::first_difference(const Layout &there) const {
    if (ranks() != there.ranks()) {
        return fmt::format("there are {} ranks here and {} there", ranks(), there.ranks());
    }
    const std::size_t common = std::min(tensors_.size(), there.tensors_.size());
    for (std::size_t i = 0; i < common; ++i) {
        const Tensor &mine = tensors_[i];
        const Tensor &other = there.tensors_[i];
        const std::string name = quoted(mine.name);
        if (mine.name != other.name) {
            return fmt::format("tensor {} is {} here and {} there", i, name, quoted(other.name));
        }
        if (mine.shape != other.shape) {
            return fmt::format("tensor {} has shape [{}] here and [{}] there", name,
                               fmt::join(mine.shape, ", "), fmt::join(other.shape, ", "));
        }
        if (mine.offset != other.offset) {
            return fmt::format("tensor {} starts at {} here and at {} there", name, mine.offset,
                               other.offset);
        }
        if (mine.block != other.block) {
            return fmt::format("tensor {} has blocks of {} elements here and of {} there", name,
                               mine.block, other.block);
        }
        if (mine.batch_dimensions != other.batch_dimensions) {
            return fmt::format("tensor {} has {} batch dimensions here and {} there", name,
                               mine.batch_dimensions, other.batch_dimensions);
        }
    }
    if (tensors_.size() != there.tensors_.size()) {
        const bool more_here = tensors_.size() > common;
        return fmt::format(
            "there are {} tensors here and {} there; the first that only one side "
            "has is {}",
            tensors_.size(), there.tensors_.size(),
            quoted((more_here ? tensors_ : there.tensors_)[common].name));
    }
    if (elements() != there.elements()) {
        return fmt::format("the buffer has {} elements here and {} there", elements(),
                           there.elements());
    }
    const auto cut = std::ranges::mismatch(cuts_, there.cuts_);
    if (cut.in1 == cuts_.end()) return "";
    return fmt::format("cut {} is at {} here and at {} there", cut.in1 - cuts_.begin(), *cut.in1,
                       *cut.in2);
}

std::string to_string(const Layout &layout) {
    constexpr std::size_t max_lines = 64;  // of each list, so that the text stays readable
    std::string text = fmt::format(
        "layout {:016x}: {} tensors, {} elements ({} padding), {} ranks, largest shard "
        "{}\n",
        layout.hash(), layout.tensors().size(), layout.elements(), layout.padding(), layout.ranks(),
        layout.largest_shard());
    for (std::size_t i = 0; i < std::min(layout.tensors().size(), max_lines); ++i) {
        const Layout::Tensor &tensor = layout.tensors()[i];
        text += fmt::format("    [{}, {}) {} [{}] block {}", tensor.offset,
                            tensor.offset + tensor.elements, quoted(tensor.name),
                            fmt::join(tensor.shape, ", "), tensor.block);
        if (tensor.batch_dimensions > 0) text += fmt::format(" batch {}", tensor.batch_dimensions);
        text += '\n';
    }
    if (layout.tensors().size() > max_lines) {
        text += fmt::format("    ... {} more tensors\n", layout.tensors().size() - max_lines);
    }
    const auto cuts = layout.cuts().first(std::min(layout.cuts().size(), max_lines));
    text += fmt::format("    cuts {}", fmt::join(cuts, " "));
    if (layout.cuts().size() > max_lines) {
        text += fmt::format(" ... {} more", layout.cuts().size() - max_lines);
    }
    return text + '\n';
}

std::ostream &operator<<(std::ostream &stream, const Layout &layout) {
    return stream << to_string(layout);
}

}  // namespace vescomm::internal
