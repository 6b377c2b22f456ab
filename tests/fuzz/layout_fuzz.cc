// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The canonical bytes of a layout (layout/layout.h).
//
//     byte 0    0: the rest comes from a file or another rank; otherwise numbers, from which a
//               mostly valid layout is made
//
// Invariants: accepted bytes equal the bytes of the layout that they describe; the pieces of all
// ranks cover every element of every tensor once; a rejection has a sentence.
#include "layout/layout.h"

#include "base/error.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

// Limit for checks that visit every rank: layouts may have more ranks and elements than can be
// visited.
constexpr int max_ranks = 64;

void check_pieces(const Layout &layout) {
    if (layout.ranks() > max_ranks) return;
    std::int64_t covered = 0, wanted = 0, largest = 0, sharded = 0;
    for (const Layout::Tensor &tensor : layout.tensors()) {
        wanted += tensor.elements;
        const auto found = layout.find(tensor.name);
        require(found && layout.tensors()[*found].name == tensor.name, "a tensor has its name");
    }
    for (int rank = 0; rank < layout.ranks(); ++rank) {
        const Layout::Shard shard = layout.shard(rank);
        sharded += shard.elements();
        largest = std::max(largest, shard.elements());
        std::int64_t end = 0;
        for (const Layout::Piece &piece : layout.pieces(rank)) {
            const Layout::Tensor &tensor = layout.tensors()[piece.tensor];
            require(piece.elements >= 1 && piece.first >= 0 &&
                        piece.elements <= tensor.elements - piece.first,
                    "a piece lies in its tensor");
            require(piece.offset >= end && piece.elements <= shard.elements() - piece.offset,
                    "pieces lie in their shard, one after another");
            require(shard.begin + piece.offset == tensor.offset + piece.first,
                    "a piece is where its tensor is");
            require(layout.piece(piece.tensor, rank) == piece, "a piece is found by its tensor");
            end = piece.offset + piece.elements;
            covered += piece.elements;
        }
    }
    require(covered == wanted, "every element belongs to one rank");
    require(sharded == layout.elements() && sharded - wanted == layout.padding(),
            "the rest is padding");
    require(largest == layout.largest_shard(), "the largest shard is known");
}

void check(const Layout &layout, std::span<const std::byte> bytes) {
    const std::vector<std::byte> again = layout.serialise();
    require(std::ranges::equal(again, bytes), "a layout serialises to the same bytes");
    const Layout parsed = Layout::parse(again);
    require(parsed == layout && parsed.hash() == layout.hash(),
            "a layout parses to what was serialised");
    require(layout.first_difference(parsed).empty(), "a layout does not differ from itself");
    require(!to_string(layout).empty(), "a layout can be printed");
    check_pieces(layout);
}

void parse(std::string_view text) try {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    check(Layout::parse(bytes), bytes);
} catch (const Error &error) {
    require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the bytes are to blame");
    require(*error.what() != '\0', "an error has a sentence");
}

void make(fuzz::Input input) {
    std::vector<Layout::Tensor> tensors;
    std::int64_t offset = 0;
    for (std::size_t i = 0, count = input.below(5); i < count; ++i) {
        Layout::Tensor tensor;
        tensor.name = std::string(input.take(input.below(4)));
        std::int64_t elements = 1;
        for (std::size_t k = 0, dimensions = input.below(4); k < dimensions; ++k) {
            const std::uint8_t extent = input.byte();
            tensor.shape.push_back(extent == 255 ? std::int64_t{1} << 40 : extent % 16);
            elements = extent == 255 ? 4096 : elements * tensor.shape.back();
        }
        tensor.offset =
            offset + static_cast<std::int64_t>(input.below(3)) - (input.below(16) == 15);
        tensor.block = static_cast<std::int64_t>(input.below(8)) + 1;
        tensor.batch_dimensions = static_cast<std::int32_t>(input.below(4)) / 3;
        offset = tensor.offset + elements;
        tensors.push_back(std::move(tensor));
    }
    const std::int64_t elements = offset + static_cast<std::int64_t>(input.below(4));
    std::vector<std::int64_t> cuts{0};
    for (std::size_t i = 0, count = input.below(5); i < count; ++i)
        cuts.push_back(std::min(cuts.back() + input.byte(), std::max<std::int64_t>(elements, 0)));
    cuts.push_back(elements);
    try {
        const Layout layout(tensors, elements, cuts);
        check(layout, layout.serialise());
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the layout is to blame");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    if (input.byte() == 0) parse(input.rest());
    else make(input);
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const auto bytes_of = [](const Layout &layout) {
        const std::vector<std::byte> bytes = layout.serialise();
        return std::string(1, '\0') +
               std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    };
    const std::string model = bytes_of(Layout({{"wq", {4, 8}, 0, 8},
                                               {"experts", {2, 3, 4}, 32, 8, 1},
                                               {"norm", {}, 60},
                                               {"none", {0}, 61}},
                                              64, {0, 16, 16, 40, 64}));
    std::string huge = model;
    huge.replace(17, 8, std::string(8, '\xff'));
    const std::int64_t counts[] = {1, 0, 3};
    return {
        {"model", model},
        {"counts", bytes_of(Layout::from_counts(counts))},
        {"cut-short", model.substr(0, model.size() / 2)},
        {"huge-count", huge},
        {"other-version", std::string(1, '\0') + "vescomm layout 2"},
        {"made", std::string("\1\2\1a\2\4\4\0\0\3\0\1b\1\5\0\0\0\0\1\2\4\4", 23)},
        {"made-block-cut", std::string("\1\1\1a\1\x08\0\0\7\0\0\1\3", 13)},
    };
}
