// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "execute/bindings.h"
#include "execute/program.h"
#include "execute/run_context.h"

namespace vescomm::internal {

// The words of a slot.
inline constexpr std::uint32_t source_word = 0, output_word = 1, first_block_word = 2;

// The arrays of an operation that lie in registered memory. In its slot of the staging buffer, each
// rank publishes where they are; its local peers then read them there, and not in the staging
// buffer. Peers read elements of the type of the staging buffer: an array of another type is
// converted on its way there, and counts as not registered.
//
// A word is 0 if the array is not registered, otherwise 1 + its offset in the pool of its rank.
// There is one for the source, one for the output, and in an all_to_all_v one for the block for
// each local peer.
class ArrayRegistration {
public:
    ArrayRegistration(const Bindings &bindings, const RunContext &context)
        : registration_(bindings.registration),
          context_(context),
          type_(bindings.staging.type),
          source_has_type_(bindings.source.type == type_),
          output_has_type_(bindings.output.type == type_),
          words_(first_block_word + registration_.blocks.size()) {}

    // Before the next run.
    void set_arrays(std::span<const Piece> source, std::span<const Piece> output);
    bool contains(Region array) const noexcept {
        return array == Region::source ? source_registered_ : words_[output_word] != 0;
    }
    // Publishes the words. This rank has acquired the slot.
    void publish() const noexcept;

    // `bytes` registered bytes of a local peer, or nullptr if they are in its staging buffer. The
    // first flag of the peer in this run has been seen. A rank of another node could have written
    // the word: it is not trusted.
    const std::byte *find(const RegisteredAddress &address, std::uint64_t bytes) const noexcept {
        const auto local = static_cast<std::size_t>(address.local);
        const std::uint64_t word = *context_.registered_word(local, address.word);
        const std::uint64_t size = registration_.pools->bytes;
        if (word == 0 || word - 1 > size || address.offset > size - (word - 1) ||
            bytes > size - (word - 1) - address.offset)
            return nullptr;
        return registration_.pools->base[local] + (word - 1) + address.offset;
    }

private:
    // The word for `count` bytes in a pool of this rank.
    std::uint64_t word_of(const std::byte *data, std::uint64_t bytes) const noexcept;
    // The word for the only piece of an array.
    std::uint64_t word_of(std::span<const Piece> pieces, std::size_t bytes) const noexcept;
    // Returns true if all blocks are registered.
    bool set_blocks(std::span<const Piece> source, std::size_t bytes) noexcept;

    const Registration &registration_;
    const RunContext &context_;
    const vescomm_type_t type_;  // of the staging buffer
    const bool source_has_type_, output_has_type_;
    std::vector<std::uint64_t> words_;
    bool source_registered_ = false;
};

}  // namespace vescomm::internal
