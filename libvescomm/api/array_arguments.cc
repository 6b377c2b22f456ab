// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/array_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "api/guard.h"
#include "base/types.h"

namespace vescomm::internal {

namespace {

bool countable(std::int64_t given) {
    return given >= 0 && given <= max_elements;
}

[[noreturn]] void refuse_count(const Caller &caller, const std::string &what, std::int64_t given) {
    caller.refuse(what + " is " + std::to_string(given) + "; it must be from 0 to " +
                  std::to_string(max_elements));
}

// The addresses of a block of an array: [begin, end).
struct AddressRange {
    std::uintptr_t begin = 0, end = 0;
    bool written = false;

    std::string text() const {
        return fmt::format("the block of {} bytes at {:#x}, which is {}", end - begin, begin,
                           written ? "written" : "read");
    }
};

}  // namespace

void Caller::refuse(const std::string &why) const {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + why);
}

void Caller::require_type() const {
    if (type < VESCOMM_F32 || type > last_type)
        refuse("there is no " + name_of_type(type) +
               "; use one of VESCOMM_F32 (1) to VESCOMM_C128 (" + std::to_string(last_type) + ")");
}

std::int64_t Caller::count(std::int64_t given) const {
    if (!countable(given)) refuse_count(*this, "count", given);
    return given;
}

std::int32_t Caller::tag(const CallArguments &arguments) const {
    if (arguments.tag != 0 && !is_message(arguments.collective))
        refuse("takes no tag; leave it zero");
    if (arguments.tag < 0)
        refuse("tag is " + std::to_string(arguments.tag) + "; it must be from 0 to " +
               std::to_string(max_tag));
    return arguments.tag;
}

void Caller::counts(const std::int64_t *given, const char *name,
                    std::vector<std::int64_t> &counts) const {
    require(given, function, name);
    std::int64_t sum = 0;
    for (int k = 0; k < ranks(); ++k) {
        const auto which = [&] { return std::string(name) + "[" + std::to_string(k) + "]"; };
        if (!countable(given[k])) refuse_count(*this, which(), given[k]);
        sum += given[k];
        if (!countable(sum))
            refuse_count(*this, std::string("the sum of ") + name + " up to " + which(), sum);
        counts.push_back(given[k]);
    }
}

void Caller::equal_counts(std::int64_t given, std::vector<std::int64_t> &counts) const {
    const std::int64_t sum = count(given) * ranks();
    if (!countable(sum))
        refuse_count(*this, "count for " + std::to_string(ranks()) + " ranks together", sum);
    counts.assign(static_cast<std::size_t>(ranks()), given);
}

// Sources are only read, but the executor has only one type of pointer, so const is cast away.
Piece Caller::piece(const void *array, std::int64_t offset, std::int64_t elements,
                    const char *name) const {
    if (elements == 0) return {nullptr, 0};
    if (array == nullptr)
        refuse(std::string(name) + " is NULL, and has " + std::to_string(elements) +
               " elements to hold");
    const std::size_t size = size_of(type);
    const std::size_t alignment = alignment_of(type);
    if (reinterpret_cast<std::uintptr_t>(array) % alignment != 0)
        refuse(std::string(name) + " is not aligned to " + std::to_string(alignment) +
               " bytes, as arrays of " + name_of_type(type) + " must be");
    auto *data = static_cast<std::byte *>(const_cast<void *>(array));
    return {data + static_cast<std::size_t>(offset) * size, elements};
}

void Caller::pieces(const void *array, const std::vector<std::int64_t> &counts,
                    const std::int64_t *offsets, const char *name,
                    std::vector<Piece> &pieces) const {
    std::int64_t next = 0;
    for (std::size_t k = 0; k < counts.size(); ++k) {
        std::int64_t offset = next;
        if (offsets != nullptr) offset = offsets[k];
        if (!countable(offset))
            refuse_count(*this, "offsets[" + std::to_string(k) + "] of " + name, offset);
        pieces.push_back(piece(array, offset, counts[k], name));
        next += counts[k];
    }
}

void require_apart(const Caller &caller, const Call &made) {
    const std::size_t size = size_of(caller.type);
    std::array<AddressRange, 16> few;
    std::vector<AddressRange> many;
    const std::size_t max = made.source.size() + made.output.size();
    if (max > few.size()) many.resize(max);
    AddressRange *const ranges = many.empty() ? few.data() : many.data();
    std::size_t count = 0;
    const auto add = [&](const Piece &piece, bool written) {
        if (piece.elements == 0) return;
        const auto begin = reinterpret_cast<std::uintptr_t>(piece.data);
        ranges[count++] = {begin, begin + static_cast<std::size_t>(piece.elements) * size, written};
    };
    const auto own = [&](const std::vector<Piece> &array) {
        if (array.empty()) return Piece{};
        return array[array.size() == 1 ? 0 : static_cast<std::size_t>(caller.rank())];
    };
    const bool in_place = own(made.source) == own(made.output);
    for (const Piece &piece : made.output) add(piece, true);
    for (const Piece &piece : made.source)
        if (!in_place || piece != own(made.source)) add(piece, false);
    const std::span<AddressRange> all(ranges, count);
    std::ranges::sort(all, {}, &AddressRange::begin);
    AddressRange read, written;  // the ranges with the largest end so far
    for (const AddressRange &next : all) {
        if (next.begin < written.end || (next.written && next.begin < read.end))
            caller.refuse(fmt::format(
                "arrays overlap: {}, shares bytes with {}; what is written must share no element "
                "with another block, but source and output may be the same where this rank's own "
                "block goes",
                (next.begin < written.end ? written : read).text(), next.text()));
        AddressRange &last = next.written ? written : read;
        if (next.end > last.end) last = next;
    }
}

}  // namespace vescomm::internal
