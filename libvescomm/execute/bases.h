// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "execute/bindings.h"

namespace vescomm::internal {

// A base and an offset from it.
struct Address {
    std::uint32_t base = 0;  // index in Bases
    std::uint64_t offset = 0;  // bytes
};

// The slots of a run.
enum class SlotKind : std::uint8_t { none, staging, inlined };

// Bytes from one slot to another, negative to an earlier one.
inline std::ptrdiff_t slot_distance(std::uint32_t from, std::uint32_t to,
                                    std::uint64_t slot_bytes) noexcept {
    return (std::ptrdiff_t{to} - std::ptrdiff_t{from}) * static_cast<std::ptrdiff_t>(slot_bytes);
}

// The memory that the steps of a program address: source pieces, then this node's slabs of the
// buffer, output pieces, then this node's slabs of the staging buffer, of the partial sums and of
// inline data. It moves from run to run, with the caller's arrays and the slots.
class Bases {
public:
    // Indices of the first base of a region.
    struct First {
        std::size_t source = 0, output = 0;
        std::size_t staging = 0;  // the partial sums follow
        std::size_t inlined = 0;
    };

    Bases() = default;
    // `all`: in slots 0. `slot_bytes`, `inline_bytes`: distances of two slots.
    Bases(std::vector<std::byte *> all, const First &first, std::uint64_t slot_bytes,
          std::uint64_t inline_bytes)
        : all_(std::move(all)),
          first_(first),
          slot_bytes_(slot_bytes),
          inline_bytes_(inline_bytes) {}

    std::byte *at(const Address &address) const noexcept {
        return all_[address.base] + address.offset;
    }
    // The slot in which an address lies.
    SlotKind slot_of(const Address &address) const noexcept {
        if (address.base < first_.staging) return SlotKind::none;
        return address.base < first_.inlined ? SlotKind::staging : SlotKind::inlined;
    }
    // The first byte of the output.
    std::byte *output() const noexcept { return all_[first_.output]; }
    // Index of a local peer's slab of the staging buffer.
    std::size_t staging_of(std::size_t local) const noexcept { return first_.staging + local; }

    // As many pieces as were bound, of the same sizes.
    void move_source(std::span<const Piece> pieces) noexcept { move(first_.source, pieces); }
    void move_output(std::span<const Piece> pieces) noexcept { move(first_.output, pieces); }

    void move_to(std::uint32_t slot, std::uint32_t inline_slot) noexcept {
        move(first_.staging, first_.inlined, slot_distance(slot_, slot, slot_bytes_));
        move(first_.inlined, all_.size(), slot_distance(inline_slot_, inline_slot, inline_bytes_));
        slot_ = slot;
        inline_slot_ = inline_slot;
    }

private:
    void move(std::size_t begin, std::size_t end, std::ptrdiff_t away) noexcept {
        for (std::size_t i = begin; i < end; ++i) all_[i] += away;
    }
    void move(std::size_t first, std::span<const Piece> pieces) noexcept {
        for (std::size_t i = 0; i < pieces.size(); ++i) all_[first + i] = pieces[i].data;
    }

    std::vector<std::byte *> all_;
    First first_;
    std::uint64_t slot_bytes_ = 0, inline_bytes_ = 0;
    std::uint32_t slot_ = 0, inline_slot_ = 0;  // to which the bases point
};

}  // namespace vescomm::internal
