// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The exported functions of layouts.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "api/guard.h"
#include "api/handles.h"
#include "layout/boxes.h"
#include "layout/quoted.h"

using namespace vescomm::internal;

namespace {

constexpr const char *create = "vescomm_layout_create";

template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                fmt::format(format, std::forward<Values>(values)...));
}

// The first names of a layout, for a caller that has asked for another one.
std::string first_names(const Layout &layout) {
    constexpr std::size_t most = 4;
    std::string text;
    const char *separator = "; its names are ";
    for (std::size_t i = 0; i < std::min(most, layout.tensors().size()); ++i) {
        text += std::exchange(separator, ", ") + quoted(layout.tensors()[i].name);
    }
    if (layout.tensors().size() > most) text += " and so on";
    return text;
}

Layout::Tensor to_tensor(const vescomm_tensor_t &tensor, size_t index) {
    if (tensor.name == nullptr) refuse("{}: the name of tensor {} is NULL", create, index);
    if (tensor.reserved != 0) {
        refuse("{}: reserved of tensor {} is {}; leave it zero", create, index, tensor.reserved);
    }
    if (tensor.dimensions < 0) {
        refuse("{}: tensor {} has {} dimensions; give at least 0 (a scalar)", create, index,
               tensor.dimensions);
    }
    if (tensor.dimensions > 0 && tensor.shape == nullptr) {
        refuse("{}: the shape of tensor {} is NULL, and it has {} dimensions", create, index,
               tensor.dimensions);
    }
    Layout::Tensor result;
    result.name = tensor.name;
    result.shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
    result.offset = tensor.offset;
    result.block = tensor.block == 0 ? 1 : tensor.block;
    result.batch_dimensions = tensor.batch_dimensions;
    return result;
}

// Reads an array of append-only structs. Its stride is the size of the caller's struct: struct_size
// of the first element, which all other elements must repeat.
std::vector<Layout::Tensor> read_tensors(const vescomm_tensor_t *tensors, size_t count) {
    std::vector<Layout::Tensor> result;
    if (count == 0) return result;
    const size_t stride = checked_struct_size(tensors, create, "tensor 0");
    const auto *bytes = reinterpret_cast<const unsigned char *>(tensors);
    result.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        const auto *theirs = reinterpret_cast<const vescomm_tensor_t *>(bytes + i * stride);
        const std::string which = fmt::format("tensor {}", i);
        const size_t size = checked_struct_size(theirs, create, which.c_str());
        if (size != stride) {
            refuse(
                "{}: struct_size of tensor {} is {} and that of tensor 0 is {}; make every "
                "tensor with vescomm_tensor_init()",
                create, i, size, stride);
        }
        result.push_back(to_tensor(read_struct(theirs, create, which.c_str()), i));
    }
    return result;
}

void require_ranks(int32_t ranks, const char *function) {
    if (ranks < 1) refuse("{}: ranks is {}; it must be at least 1", function, ranks);
}

void require_tensor(const Layout &layout, size_t index, const char *function) {
    if (index < layout.tensors().size()) return;
    refuse("{}: index {} is not in [0, {}), the layout's tensors", function, index,
           layout.tensors().size());
}

void require_rank(const Layout &layout, int32_t rank, const char *function) {
    if (rank >= 0 && rank < layout.ranks()) return;
    refuse("{}: rank {} is not one of the layout's, which are in [0, {})", function, rank,
           layout.ranks());
}

}  // namespace

vescomm_status_t vescomm_layout_create(const vescomm_tensor_t *tensors, size_t count,
                                       int64_t elements, const int64_t *cuts, int32_t ranks,
                                       vescomm_layout_t **layout) {
    return guarded([&] {
        if (count > 0) require(tensors, create, "tensors");
        require(cuts, create, "cuts");
        require(layout, create, "layout");
        require_ranks(ranks, create);
        *layout = new vescomm_layout{Layout(read_tensors(tensors, count), elements,
                                            std::vector<int64_t>(cuts, cuts + ranks + 1))};
    });
}

vescomm_status_t vescomm_layout_create_from_counts(const int64_t *counts, int32_t ranks,
                                                   vescomm_layout_t **layout) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_create_from_counts";
        require(counts, function, "counts");
        require(layout, function, "layout");
        require_ranks(ranks, function);
        *layout = new vescomm_layout{Layout::from_counts({counts, static_cast<size_t>(ranks)})};
    });
}

vescomm_status_t vescomm_layout_free(vescomm_layout_t *layout) {
    return guarded([&] { delete layout; });
}

vescomm_status_t vescomm_layout_get_info(const vescomm_layout_t *layout,
                                         vescomm_layout_info_t *info) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_get_info";
        require(layout, function, "layout");
        vescomm_layout_info_t ours = vescomm_layout_info_init();
        ours.ranks = layout->value.ranks();
        ours.elements = layout->value.elements();
        ours.padding = layout->value.padding();
        ours.largest = layout->value.largest_shard();
        ours.tensors = layout->value.tensors().size();
        ours.hash = layout->value.hash();
        write_struct(info, ours, function, "info");
    });
}

vescomm_status_t vescomm_layout_get_tensor(const vescomm_layout_t *layout, size_t index,
                                           vescomm_tensor_t *tensor) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_get_tensor";
        require(layout, function, "layout");
        require_tensor(layout->value, index, function);
        const Layout::Tensor &found = layout->value.tensors()[index];
        vescomm_tensor_t ours = vescomm_tensor_init();
        ours.dimensions = static_cast<int32_t>(found.shape.size());
        ours.name = found.name.c_str();
        ours.shape = found.shape.data();
        ours.offset = found.offset;
        ours.block = found.block;
        ours.batch_dimensions = found.batch_dimensions;
        write_struct(tensor, ours, function, "tensor");
    });
}

vescomm_status_t vescomm_layout_find_tensor(const vescomm_layout_t *layout, const char *name,
                                            size_t *index) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_find_tensor";
        require(layout, function, "layout");
        require(name, function, "name");
        require(index, function, "index");
        const auto found = layout->value.find(name);
        if (!found) {
            refuse("{}: none of the layout's {} tensors is named {}{}", function,
                   layout->value.tensors().size(), quoted(name), first_names(layout->value));
        }
        *index = *found;
    });
}

vescomm_status_t vescomm_layout_get_shard(const vescomm_layout_t *layout, int32_t rank,
                                          int64_t *begin, int64_t *end) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_get_shard";
        require(layout, function, "layout");
        require(begin, function, "begin");
        require(end, function, "end");
        require_rank(layout->value, rank, function);
        const Layout::Shard shard = layout->value.shard(rank);
        *begin = shard.begin;
        *end = shard.end;
    });
}

vescomm_status_t vescomm_layout_get_pieces(const vescomm_layout_t *layout, int32_t rank,
                                           vescomm_piece_t *pieces, size_t capacity,
                                           size_t *count) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_get_pieces";
        require(layout, function, "layout");
        if (capacity > 0) require(pieces, function, "pieces");
        require(count, function, "count");
        require_rank(layout->value, rank, function);
        const std::vector<Layout::Piece> found = layout->value.pieces(rank);
        for (size_t i = 0; i < std::min(found.size(), capacity); ++i) {
            pieces[i] = {found[i].tensor, found[i].first, found[i].elements, found[i].offset};
        }
        *count = found.size();
    });
}

vescomm_status_t vescomm_layout_get_piece(const vescomm_layout_t *layout, size_t tensor,
                                          int32_t rank, vescomm_piece_t *piece) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_get_piece";
        require(layout, function, "layout");
        require(piece, function, "piece");
        require_tensor(layout->value, tensor, function);
        require_rank(layout->value, rank, function);
        const Layout::Piece found = layout->value.piece(tensor, rank);
        *piece = {found.tensor, found.first, found.elements, found.offset};
    });
}

vescomm_status_t vescomm_layout_get_boxes(const vescomm_layout_t *layout, size_t tensor,
                                          int64_t first, int64_t elements, int64_t *boxes,
                                          size_t capacity, size_t *count) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_get_boxes";
        require(layout, function, "layout");
        require(count, function, "count");
        require_tensor(layout->value, tensor, function);
        const Layout::Tensor &whole = layout->value.tensors()[tensor];
        if (capacity > 0 && !whole.shape.empty()) require(boxes, function, "boxes");
        if (first < 0 || elements < 0 || first > whole.elements ||
            elements > whole.elements - first) {
            refuse("{}: {} elements from {} on are not all in tensor {}, which has {}", function,
                   elements, first, tensor, whole.elements);
        }
        const std::vector<Box> found = vescomm::internal::boxes(whole.shape, first, elements);
        for (size_t i = 0; i < std::min(found.size(), capacity); ++i) {
            boxes = std::ranges::copy(found[i].start, boxes).out;
            boxes = std::ranges::copy(found[i].extent, boxes).out;
        }
        *count = found.size();
    });
}

vescomm_status_t vescomm_layout_serialise(const vescomm_layout_t *layout, void *bytes,
                                          size_t capacity, size_t *size) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_serialise";
        require(layout, function, "layout");
        require(size, function, "size");
        if (capacity > 0) require(bytes, function, "bytes");
        const std::vector<std::byte> all = layout->value.serialise();
        if (capacity >= all.size()) std::memcpy(bytes, all.data(), all.size());
        *size = all.size();
    });
}

vescomm_status_t vescomm_layout_parse(const void *bytes, size_t size, vescomm_layout_t **layout) {
    return guarded([&] {
        constexpr const char *function = "vescomm_layout_parse";
        if (size > 0) require(bytes, function, "bytes");
        require(layout, function, "layout");
        *layout = new vescomm_layout{Layout::parse({static_cast<const std::byte *>(bytes), size})};
    });
}
