// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/index.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/files.h"
#include "fsdp/checkpoint/json_reader.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"
#include "planner/formats/quoted.h"
#include "planner/formats/strict_json.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using formats::InputError;
using nlohmann::json;

json checksums_to_json(const Checksums &checksums) {
    json list = json::array();
    for (const std::uint64_t checksum : checksums) list.push_back(hexadecimal(checksum));
    return list;
}

// The sentence of Error, for bytes of a file.
template <typename Body>
auto as_input(Body body) {
    try {
        return body();
    } catch (const Error &error) {
        throw InputError(error.what());
    }
}

void require_chunks(const JsonObject &object, const Checksums &checksums, std::int64_t bytes,
                    std::int64_t checksum_bytes) {
    const std::int64_t chunks = chunks_of(bytes, checksum_bytes);
    if (static_cast<std::int64_t>(checksums.size()) != chunks)
        object.refuse(fmt::format("there are {} checksums; its {} bytes need {}", checksums.size(),
                                  bytes, chunks));
}

IndexedTensor parse_tensor(const json &value, std::int64_t checksum_bytes,
                           const std::string &where) {
    const JsonObject object(value, where);
    object.require_keys({"name", "role", "dtype", "shape", "pieces"});
    IndexedTensor result;
    Tensor &tensor = result.tensor;
    tensor.name = object.text("name");
    tensor.role = object.text("role");
    tensor.shape = object.numbers("shape");
    const std::string &type = object.text("dtype");
    const auto named = formats::type_named(type);
    if (!named || formats::safetensors_name_of(*named) != type)
        object.refuse(
            fmt::format("dtype {} is none that a checkpoint has", formats::quoted_text(type)));
    tensor.type = *named;
    as_input([&] { return check_tensor(tensor, where); });
    const std::string place = where + ": " + describe(tensor);
    for (const json &listed : object.list("pieces")) {
        const JsonObject entry(listed, place);
        entry.require_keys({"first", "count", "checksums"});
        IndexedPiece &piece = result.pieces.emplace_back();
        piece.first = entry.number("first", 0, formats::max_elements);
        piece.count = entry.number("count", 0, formats::max_elements);
        piece.checksums = entry.checksums("checksums");
        const std::int64_t bytes =
            as_input([&] { return check_piece(tensor, piece.first, piece.count, where); });
        require_chunks(entry, piece.checksums, bytes, checksum_bytes);
    }
    return result;
}

IndexedExtra parse_extra(const json &value, std::int64_t checksum_bytes, const std::string &where) {
    const JsonObject object(value, where);
    object.require_keys({"name", "bytes", "checksums"});
    IndexedExtra extra;
    extra.name = object.text("name");
    if (extra.name.empty() || extra.name.size() > max_name_bytes)
        object.refuse(fmt::format("the name of an extra has {} bytes; 1 to {} are allowed",
                                  extra.name.size(), max_name_bytes));
    extra.bytes = object.number("bytes", 0, formats::max_elements);
    extra.checksums = object.checksums("checksums");
    require_chunks(object, extra.checksums, extra.bytes, checksum_bytes);
    return extra;
}

}  // namespace

std::int64_t chunks_of(std::int64_t bytes, std::int64_t checksum_bytes) {
    return bytes / checksum_bytes + (bytes % checksum_bytes != 0 ? 1 : 0);
}

std::string to_json(const Index &index, const std::string &where) {
    json tensors = json::array();
    for (const IndexedTensor &indexed : index.tensors) {
        const Tensor &tensor = indexed.tensor;
        json pieces = json::array();
        for (const IndexedPiece &piece : indexed.pieces)
            pieces.push_back({{"first", piece.first},
                              {"count", piece.count},
                              {"checksums", checksums_to_json(piece.checksums)}});
        tensors.push_back({{"name", tensor.name},
                           {"role", tensor.role},
                           {"dtype", *formats::safetensors_name_of(tensor.type)},
                           {"shape", tensor.shape},
                           {"pieces", std::move(pieces)}});
    }
    json extras = json::array();
    for (const IndexedExtra &extra : index.extras)
        extras.push_back({{"name", extra.name},
                          {"bytes", extra.bytes},
                          {"checksums", checksums_to_json(extra.checksums)}});
    const json values = {
        {"format", format_name},
        {"version", format_version},
        {"rank", index.rank},
        {"ranks", index.ranks},
        {"tensors", tensors},
        {"extras", extras},
        {"checksum_bytes", index.checksum_bytes},
    };
    try {
        return values.dump() + "\n";
    } catch (const json::exception &) {
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    where + ": the name of a tensor or of an extra is no UTF-8; rename it");
    }
}

Index parse_index(std::string_view text, const std::string &where) {
    // An index has one checksum for each chunk: 2^28 values are 2^28 chunks, 256 TiB for each rank.
    const json values =
        formats::parse_strictly(text, where, {.depth = 6, .values = std::size_t{1} << 28});
    const JsonObject object(values, where);
    object.require_format();
    object.require_keys(
        {"format", "version", "rank", "ranks", "checksum_bytes", "tensors", "extras"});
    Index index;
    index.ranks = static_cast<int>(object.number("ranks", 1, max_ranks));
    index.rank = static_cast<int>(object.number("rank", 0, index.ranks - 1));
    index.checksum_bytes = object.number("checksum_bytes", 1, max_checksum_bytes);
    for (const json &value : object.list("tensors"))
        index.tensors.push_back(parse_tensor(value, index.checksum_bytes, where));
    for (const json &value : object.list("extras"))
        index.extras.push_back(parse_extra(value, index.checksum_bytes, where));
    return index;
}

std::uint64_t checksum_of(std::string_view bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace vescomm::fsdp::checkpoint
