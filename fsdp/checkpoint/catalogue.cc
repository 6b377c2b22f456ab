// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/catalogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/files.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using formats::InputError;

std::string form_of(const Tensor &tensor) {
    std::string shape;
    for (const std::int64_t extent : tensor.shape)
        shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
    return fmt::format("{} [{}]", formats::name_of(tensor.type), shape);
}

// Checks that every element of the tensor is in one piece.
void check_cover(const StoredTensorPieces &stored, const std::string &where) {
    const std::int64_t elements = *formats::count_elements(stored.tensor.shape);
    std::int64_t covered = 0;
    const StoredPiece *previous = nullptr;
    for (const StoredPiece &piece : stored.pieces) {
        if (piece.first < covered)
            throw InputError(fmt::format(
                "{}: {}: element {} was saved by rank {} and by rank {}; an element must be saved "
                "once",
                where, describe(stored.tensor), piece.first, previous->rank, piece.rank));
        if (piece.first > covered)
            throw InputError(fmt::format("{}: {}: elements {} to {} were saved by no rank", where,
                                         describe(stored.tensor), covered, piece.first - 1));
        covered = piece.first + piece.count;
        previous = &piece;
    }
    if (covered < elements)
        throw InputError(fmt::format("{}: {}: elements {} to {} were saved by no rank", where,
                                     describe(stored.tensor), covered, elements - 1));
}

}  // namespace

Catalogue::Catalogue(std::vector<Index> indexes, const std::string &where)
    : ranks_(static_cast<int>(indexes.size())) {
    for (std::size_t rank = 0; rank < indexes.size(); ++rank) {
        const Index &index = indexes[rank];
        if (index.rank != static_cast<int>(rank) || index.ranks != ranks_)
            throw InputError(fmt::format(
                "{}: the index at the place of rank {} of {} is that of rank {} of {}; files of "
                "two saves are mixed up",
                where, rank, ranks_, index.rank, index.ranks));
        if (rank == 0) checksum_bytes_ = index.checksum_bytes;
        if (index.checksum_bytes != checksum_bytes_)
            throw InputError(fmt::format(
                "{}: checksums are for {} bytes on rank 0 and for {} bytes on rank {}; save with "
                "the same options on all ranks",
                where, checksum_bytes_, index.checksum_bytes, rank));
        add(std::move(indexes[rank]), where);
    }
    for (auto &[key, stored] : tensors_) {
        std::ranges::sort(stored.pieces, {}, &StoredPiece::first);
        check_cover(stored, where);
    }
}

void Catalogue::add(Index index, const std::string &where) {
    for (IndexedTensor &indexed : index.tensors) {
        Tensor &tensor = indexed.tensor;
        auto &stored = tensors_[std::pair(tensor.role, tensor.name)];
        if (stored.tensor.name.empty()) stored.tensor = tensor;
        if (stored.tensor != tensor)
            throw InputError(fmt::format("{}: {} is {} on rank {}, and {} on another rank", where,
                                         describe(tensor), form_of(tensor), index.rank,
                                         form_of(stored.tensor)));
        for (IndexedPiece &piece : indexed.pieces)
            if (piece.count > 0)
                stored.pieces.push_back(
                    {index.rank, piece.first, piece.count, std::move(piece.checksums)});
    }
    for (IndexedExtra &extra : index.extras) {
        const auto [place, added] = extras_.try_emplace(
            extra.name, StoredExtra{index.rank, extra.bytes, std::move(extra.checksums)});
        if (!added)
            throw InputError(fmt::format(
                "{}: the extra {} was saved by rank {} and by rank {}; its name must be given once",
                where, in_quotes(extra.name), place->second.rank, index.rank));
    }
}

const StoredTensorPieces &Catalogue::find(const Tensor &wanted, const std::string &where) const {
    const auto found = tensors_.find(std::pair(wanted.role, wanted.name));
    if (found == tensors_.end())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("{}: there is no {} among its {} tensors; load a checkpoint of "
                                "the same model",
                                where, describe(wanted), tensors_.size()));
    const Tensor &stored = found->second.tensor;
    if (stored != wanted)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("{}: {} was saved as {}, and is wanted as {}", where,
                                describe(wanted), form_of(stored), form_of(wanted)));
    return found->second;
}

std::vector<Part> parts_of(const StoredTensorPieces &stored, std::int64_t first,
                           std::int64_t count) {
    std::vector<Part> parts;
    auto piece = std::ranges::partition_point(stored.pieces, [&](const StoredPiece &candidate) {
        return candidate.first + candidate.count <= first;
    });
    while (count > 0) {
        const std::int64_t taken = std::min(count, piece->first + piece->count - first);
        parts.push_back({&*piece, first, taken});
        first += taken;
        count -= taken;
        ++piece;
    }
    return parts;
}

}  // namespace vescomm::fsdp::checkpoint
