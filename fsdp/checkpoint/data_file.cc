// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per byte in write_data() and DataFile::read(), set-up elsewhere.
#include "fsdp/checkpoint/data_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "fsdp/checkpoint/error.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using formats::InputError;

std::span<const std::byte> bytes_at(const void *data, std::int64_t bytes) {
    return {static_cast<const std::byte *>(data), static_cast<std::size_t>(bytes)};
}

std::uint64_t checksum_of_bytes(std::span<const std::byte> bytes) {
    return checksum_of({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
}

Entry make_entry(std::string name, vescomm_type_t type, std::int64_t count,
                 std::span<const std::byte> bytes) {
    Entry entry;
    entry.header.name = std::move(name);
    entry.header.type = type;
    entry.header.shape = {count};
    entry.bytes = bytes;
    return entry;
}

// Adds the tensors and pieces to the index. A rank may give pieces of one tensor in any order.
void add_pieces(std::span<const Piece> pieces, const std::string &where, Index &index) {
    std::map<std::pair<std::string_view, std::string_view>, std::size_t> places;
    for (const Piece &piece : pieces) {
        const std::int64_t bytes = check_piece(piece.tensor, piece.first, piece.count, where);
        if (bytes > 0 && piece.data == nullptr)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        fmt::format("{}: {}: data is NULL for {} elements", where,
                                    describe(piece.tensor), piece.count));
        const auto [place, added] = places.try_emplace(
            std::pair<std::string_view, std::string_view>(piece.tensor.role, piece.tensor.name),
            index.tensors.size());
        if (added) index.tensors.push_back({piece.tensor, {}});
        IndexedTensor &indexed = index.tensors[place->second];
        if (indexed.tensor != piece.tensor)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        fmt::format("{}: {}: two of its pieces give different shapes or types",
                                    where, describe(piece.tensor)));
        indexed.pieces.push_back({piece.first, piece.count, {}});
    }
}

}  // namespace

DataPlan plan_data(int rank, int ranks, std::span<const Piece> pieces,
                   std::span<const Extra> extras, std::int64_t checksum_bytes) {
    const std::string where = fmt::format("saving on rank {}", rank);
    DataPlan plan;
    plan.index.rank = rank;
    plan.index.ranks = ranks;
    plan.index.checksum_bytes = checksum_bytes;
    if (checksum_bytes < 1 || checksum_bytes > max_checksum_bytes)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("{}: a checksum for {} bytes; choose 1 to {}", where,
                                checksum_bytes, max_checksum_bytes));
    add_pieces(pieces, where, plan.index);
    for (const Extra &extra : extras) {
        if (extra.name.empty() || extra.name.size() > max_name_bytes)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        fmt::format("{}: the name of an extra has {} bytes; give one of 1 to {}",
                                    where, extra.name.size(), max_name_bytes));
        plan.index.extras.push_back(
            {extra.name, static_cast<std::int64_t>(extra.bytes.size()), {}});
    }

    // The index is complete: its members do not move any more. Pieces of one tensor have the order
    // in which they were given.
    std::map<std::pair<std::string_view, std::string_view>, std::pair<IndexedTensor *, std::size_t>>
        next;
    for (IndexedTensor &indexed : plan.index.tensors)
        next[{indexed.tensor.role, indexed.tensor.name}] = {&indexed, 0};
    for (const Piece &piece : pieces) {
        auto &[indexed, number] = next[{piece.tensor.role, piece.tensor.name}];
        IndexedPiece &entry = indexed->pieces[number++];
        if (piece.count == 0) continue;
        const std::int64_t bytes = piece.count * formats::bytes_of(piece.tensor.type);
        plan.entries.push_back(make_entry(entry_name(piece.tensor, piece.first, piece.count),
                                          piece.tensor.type, piece.count,
                                          bytes_at(piece.data, bytes)));
        plan.entries.back().checksums = &entry.checksums;
    }
    for (std::size_t i = 0; i < extras.size(); ++i) {
        const auto bytes = static_cast<std::int64_t>(extras[i].bytes.size());
        plan.entries.push_back(make_entry(entry_name(extras[i].name), VESCOMM_U8, bytes,
                                          bytes_at(extras[i].bytes.data(), bytes)));
        plan.entries.back().checksums = &plan.index.extras[i].checksums;
    }
    std::ranges::stable_sort(plan.entries, std::greater<>(), [](const Entry &entry) {
        return formats::bytes_of(entry.header.type);
    });
    std::int64_t offset = 0;
    for (Entry &entry : plan.entries) {
        entry.header.begin = offset;
        offset += static_cast<std::int64_t>(entry.bytes.size());
        entry.header.end = offset;
    }
    return plan;
}

std::int64_t write_data(SystemCalls &calls, const std::string &path, DataPlan &plan,
                        const std::function<void()> &check) {
    std::vector<formats::StoredTensor> headers;
    for (const Entry &entry : plan.entries) headers.push_back(entry.header);
    std::string header;
    try {
        header = formats::make_safetensors_header(headers, in_quotes(path));
    } catch (const InputError &error) {
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, error.what());
    }
    OutputFile file(calls, path);
    file.write(std::as_bytes(std::span(header)));
    const auto chunk_bytes = static_cast<std::size_t>(plan.index.checksum_bytes);
    for (Entry &entry : plan.entries) {
        entry.checksums->clear();
        for (std::size_t at = 0; at < entry.bytes.size(); at += chunk_bytes) {
            check();
            const auto chunk =
                entry.bytes.subspan(at, std::min(chunk_bytes, entry.bytes.size() - at));
            // The checksum first: the chunk is then in the cache when the kernel copies it.
            entry.checksums->push_back(checksum_of_bytes(chunk));
            file.write(chunk);
        }
    }
    file.finish();
    return file.written();
}

DataFile::DataFile(SystemCalls &calls, const std::string &path, std::int64_t data_bytes,
                   std::int64_t checksum_bytes)
    : file_(calls, path), where_(in_quotes(path)), checksum_bytes_(checksum_bytes) {
    if (file_.size() != data_bytes)
        throw InputError(
            fmt::format("{} has {} bytes, and had {} when it was saved; it is damaged, load an "
                        "older checkpoint",
                        where_, file_.size(), data_bytes));
    std::string first(
        static_cast<std::size_t>(std::min(data_bytes, formats::safetensors_length_bytes)), '\0');
    file_.read(0, std::as_writable_bytes(std::span(first)));
    const std::int64_t length = formats::safetensors_header_bytes(first, data_bytes, where_);
    std::string header(static_cast<std::size_t>(length), '\0');
    file_.read(formats::safetensors_length_bytes, std::as_writable_bytes(std::span(header)));
    data_begin_ = formats::safetensors_length_bytes + length;
    for (formats::StoredTensor &entry :
         formats::parse_safetensors_header(header, data_bytes - data_begin_, where_))
        entries_.emplace(entry.name, std::move(entry));
}

void DataFile::read(const std::string &entry, vescomm_type_t type, std::int64_t count,
                    const Checksums &checksums, std::int64_t begin,
                    std::span<std::byte> output) const {
    const auto found = entries_.find(entry);
    if (found == entries_.end())
        throw InputError(
            fmt::format("{} has no entry {}, which its index lists; it is damaged, load an older "
                        "checkpoint",
                        where_, in_quotes(entry)));
    const formats::StoredTensor &stored = found->second;
    if (stored.type != type || stored.shape != std::vector<std::int64_t>{count})
        throw InputError(fmt::format(
            "{}: entry {} is not of the type and the count that its index lists; it is damaged, "
            "load an older checkpoint",
            where_, in_quotes(entry)));
    const std::int64_t bytes = stored.end - stored.begin;
    const std::int64_t end = begin + static_cast<std::int64_t>(output.size());
    std::vector<std::byte> whole_chunk;
    for (std::int64_t number = begin / checksum_bytes_; number * checksum_bytes_ < end; ++number) {
        const std::int64_t chunk_begin = number * checksum_bytes_;
        const std::int64_t chunk_end = std::min(chunk_begin + checksum_bytes_, bytes);
        // A chunk of which only a part is wanted is read whole, because of its checksum.
        const bool wanted_whole = begin <= chunk_begin && chunk_end <= end;
        if (!wanted_whole) whole_chunk.resize(static_cast<std::size_t>(chunk_end - chunk_begin));
        const std::span<std::byte> chunk =
            wanted_whole ? output.subspan(static_cast<std::size_t>(chunk_begin - begin),
                                          static_cast<std::size_t>(chunk_end - chunk_begin))
                         : std::span<std::byte>(whole_chunk);
        file_.read(data_begin_ + stored.begin + chunk_begin, chunk);
        if (checksum_of_bytes(chunk) != checksums[static_cast<std::size_t>(number)])
            throw InputError(fmt::format(
                "{}: entry {}: the checksum of bytes {} to {} differs from that of the save; the "
                "file is damaged, load an older checkpoint",
                where_, in_quotes(entry), chunk_begin, chunk_end - 1));
        if (wanted_whole) continue;
        const std::int64_t from = std::max(begin, chunk_begin);
        const std::int64_t to = std::min(end, chunk_end);
        std::copy_n(chunk.begin() + (from - chunk_begin), to - from,
                    output.begin() + (from - begin));
    }
}

}  // namespace vescomm::fsdp::checkpoint
