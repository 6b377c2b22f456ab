// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/registered_arrays.h"

#include <algorithm>

#include "base/types.h"

namespace vescomm::internal {

namespace {

// True also if there are too many pieces to compare.
bool may_overlap(std::span<const Piece> some, std::span<const Piece> others, std::size_t bytes) {
    constexpr std::size_t max_comparisons = 1 << 14;
    if (!others.empty() && some.size() > max_comparisons / others.size()) return true;
    const auto end = [bytes](const Piece &piece) {
        return piece.data + static_cast<std::size_t>(piece.elements) * bytes;
    };
    return std::ranges::any_of(some, [&](const Piece &a) {
        return std::ranges::any_of(
            others, [&](const Piece &b) { return a.data < end(b) && b.data < end(a); });
    });
}

}  // namespace

void ArrayRegistration::set_arrays(std::span<const Piece> source, std::span<const Piece> output) {
    source_registered_ = false;
    std::ranges::fill(words_, 0);
    if (!registration_.pools) return;
    const std::size_t bytes = size_of(type_);
    if (output_has_type_) words_[output_word] = word_of(output, bytes);
    if (!source_has_type_) return;
    if (registration_.blocks.empty()) {
        words_[source_word] = word_of(source, bytes);
        source_registered_ = words_[source_word] != 0;
    } else {
        source_registered_ = set_blocks(source, bytes);
    }
    if (source_registered_ && registration_.not_in_place && may_overlap(source, output, bytes))
        source_registered_ = false;
    if (source_registered_) return;
    words_[source_word] = 0;
    std::fill(words_.begin() + first_block_word, words_.end(), std::uint64_t{0});
}

std::uint64_t ArrayRegistration::word_of(const std::byte *data,
                                         std::uint64_t bytes) const noexcept {
    const auto begin =
        reinterpret_cast<std::uintptr_t>(registration_.pools->base[context_.local()]);
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    const std::uint64_t size = registration_.pools->bytes;
    return at >= begin && at - begin < size && bytes <= size - (at - begin) ? at - begin + 1 : 0;
}

std::uint64_t ArrayRegistration::word_of(std::span<const Piece> pieces,
                                         std::size_t bytes) const noexcept {
    return pieces.size() == 1
               ? word_of(pieces[0].data, static_cast<std::uint64_t>(pieces[0].elements) * bytes)
               : 0;
}

bool ArrayRegistration::set_blocks(std::span<const Piece> source, std::size_t bytes) noexcept {
    for (std::size_t local = 0; local < registration_.blocks.size(); ++local) {
        const Extent &block = registration_.blocks[local];
        if (block.count == 0) continue;
        std::int64_t begin = 0;  // of the piece
        auto piece = source.begin();
        while (piece->elements <= block.begin - begin) begin += (piece++)->elements;
        if (piece->elements - (block.begin - begin) < block.count) return false;
        std::uint64_t &word = words_[first_block_word + local];
        word = word_of(piece->data + static_cast<std::size_t>(block.begin - begin) * bytes,
                       static_cast<std::uint64_t>(block.count) * bytes);
        if (word == 0) return false;
    }
    return true;
}

void ArrayRegistration::publish() const noexcept {
    std::ranges::copy(words_, context_.registered_word(context_.local(), 0));
}

}  // namespace vescomm::internal
