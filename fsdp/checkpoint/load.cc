// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up. data_file.cc touches the bytes.
#include "fsdp/checkpoint/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/files.h"
#include "fsdp/checkpoint/report.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"

namespace vescomm::fsdp::checkpoint {
namespace {

constexpr std::int64_t max_latest_bytes = 4096;
// A line of a manifest has about 100 bytes for each rank.
constexpr std::int64_t max_manifest_bytes = std::int64_t{256} << 20;
constexpr std::size_t max_open_files = 64;

// Runs `body`; errors in bytes of a file become Error.
template <typename Body>
decltype(auto) translated(Body body) {
    try {
        return body();
    } catch (const formats::InputError &error) {
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, error.what());
    }
}

// Returns a sentence that lists the saves of a folder.
std::string advice_for(const std::string &folder) {
    const std::vector<std::string> saves = list_saves(folder);
    if (saves.empty()) return "it has no complete save; give the folder of saves";
    return fmt::format("its newest complete save is \"{}\"; load {}", saves.back(),
                       in_quotes(folder + "/" + saves.back()));
}

}  // namespace

std::vector<std::string> list_saves(const std::string &folder) {
    std::vector<std::string> saves;
    for (const std::string &name : names_in(folder))
        if (save_number(name) &&
            std::ranges::binary_search(names_in_save(folder + "/" + name), manifest_file))
            saves.push_back(name);
    std::ranges::sort(saves, {}, [](const std::string &name) { return *save_number(name); });
    return saves;
}

std::optional<std::string> find_latest(SystemCalls &calls, const std::string &folder) {
    if (!std::ranges::binary_search(names_in(folder), latest_file)) return std::nullopt;
    const std::string path = folder + "/" + latest_file;
    const std::string text = read_file(calls, path, max_latest_bytes);
    try {
        return parse_latest(text, in_quotes(path));
    } catch (const formats::InputError &error) {
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            fmt::format("{}; folder {}: {}", error.what(), in_quotes(folder), advice_for(folder)));
    }
}

std::string agree_on_latest(const std::string &folder, Agreement &agreement, SystemCalls &calls) {
    const auto step = [&]() -> std::string {
        if (agreement.rank() != 0) return {};
        const auto latest = find_latest(calls, folder);
        if (latest) return *latest;
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("folder {} has no file \"{}\", which names the latest save: {}",
                                in_quotes(folder), latest_file, advice_for(folder)));
    };
    return run_on_all(agreement, step, [] {}).front();
}

Catalogue read_catalogue(SystemCalls &calls, const std::string &path, const Manifest &manifest) {
    std::vector<Index> indexes;
    for (std::size_t rank = 0; rank < manifest.size(); ++rank) {
        const std::string file = path + "/" + index_file_of(static_cast<int>(rank));
        const std::string text = read_file(calls, file, max_index_bytes);
        if (static_cast<std::int64_t>(text.size()) != manifest[rank].index_bytes ||
            checksum_of(text) != manifest[rank].index_checksum)
            throw formats::InputError(
                fmt::format("{} is not the index that the manifest lists, its size or its checksum "
                            "differs; it is damaged, load an older checkpoint",
                            in_quotes(file)));
        indexes.push_back(parse_index(text, in_quotes(file)));
    }
    return {std::move(indexes), in_quotes(path)};
}

SavePath split_path(const std::string &path) {
    const std::filesystem::path whole = path.substr(0, path.find_last_not_of('/') + 1);
    const std::string name = whole.filename().string();
    if (!save_number(name)) return {path, {}};
    const std::string folder = whole.parent_path().string();
    return {folder.empty() ? "." : folder, name};
}

Checkpoint::Checkpoint(SavePath path, SystemCalls &calls)
    : calls_(calls), folder_(std::move(path.folder)), save_(std::move(path.save)) {
    if (save_.empty()) {
        LoneAgreement alone;
        save_ = agree_on_latest(folder_, alone, calls_);
    }
    if (!save_number(save_))
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            fmt::format("{} is not the name of a save, such as \"{}\"; folder {}: {}",
                        in_quotes(save_), save_name(1), in_quotes(folder_), advice_for(folder_)));
    const std::string whole = folder_ + "/" + save_;
    const std::vector<std::string> saves = list_saves(folder_);
    if (std::ranges::find(saves, save_) == saves.end())
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            fmt::format("{} has no {}, so it is no complete save; folder {}: {}", in_quotes(whole),
                        manifest_file, in_quotes(folder_), advice_for(folder_)));
    translated([&] {
        const std::string file = whole + "/" + manifest_file;
        manifest_ = parse_manifest(read_file(calls_, file, max_manifest_bytes), in_quotes(file));
        catalogue_.emplace(read_catalogue(calls_, whole, manifest_));
    });
}

std::vector<Tensor> Checkpoint::tensors() const {
    std::vector<Tensor> tensors;
    for (const auto &[key, stored] : catalogue_->tensors()) tensors.push_back(stored.tensor);
    return tensors;
}

std::vector<std::string> Checkpoint::extras() const {
    std::vector<std::string> names;
    for (const auto &[name, stored] : catalogue_->extras()) names.push_back(name);
    return names;
}

const DataFile &Checkpoint::file_of(int rank) {
    const auto found = files_.find(rank);
    if (found != files_.end()) return found->second;
    // Wanted pieces follow the order of ranks, so an old file is rarely wanted again.
    if (files_.size() >= max_open_files) files_.erase(files_.begin());
    return files_
        .try_emplace(rank, calls_, folder_ + "/" + save_ + "/" + data_file_of(rank),
                     manifest_[static_cast<std::size_t>(rank)].data_bytes,
                     catalogue_->checksum_bytes())
        .first->second;
}

void Checkpoint::read_elements(const StoredTensorPieces &stored, std::int64_t first,
                               std::int64_t count, std::span<std::byte> output) {
    const std::int64_t size = formats::bytes_of(stored.tensor.type);
    for (const Part &part : parts_of(stored, first, count)) {
        const StoredPiece &piece = *part.piece;
        const auto bytes = static_cast<std::size_t>(part.count * size);
        file_of(piece.rank)
            .read(entry_name(stored.tensor, piece.first, piece.count), stored.tensor.type,
                  piece.count, piece.checksums, (part.first - piece.first) * size,
                  output.first(bytes));
        output = output.subspan(bytes);
    }
}

void Checkpoint::read(std::span<const WantedPiece> pieces) {
    const std::string where = "loading " + in_quotes(folder_ + "/" + save_);
    for (const WantedPiece &piece : pieces) {
        const std::int64_t bytes = check_piece(piece.tensor, piece.first, piece.count, where);
        const StoredTensorPieces &stored = catalogue_->find(piece.tensor, where);
        if (bytes == 0) continue;
        if (piece.data == nullptr)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        fmt::format("{}: {}: data is NULL for {} elements", where,
                                    describe(piece.tensor), piece.count));
        translated([&] {
            read_elements(stored, piece.first, piece.count,
                          {static_cast<std::byte *>(piece.data), static_cast<std::size_t>(bytes)});
        });
    }
}

void Checkpoint::read_bytes(const StoredTensorPieces &stored, std::int64_t begin,
                            std::span<std::byte> output) {
    const std::int64_t size = formats::bytes_of(stored.tensor.type);
    translated([&] {
        read_elements(stored, begin / size, static_cast<std::int64_t>(output.size()) / size,
                      output);
    });
}

std::optional<std::string> Checkpoint::extra(const std::string &name, std::int64_t max_bytes) {
    const auto found = catalogue_->extras().find(name);
    if (found == catalogue_->extras().end()) return std::nullopt;
    const StoredExtra &stored = found->second;
    // An index must not allocate more than its file has. The manifest does not know the size of the
    // file; file_of() compares them.
    const DataFile &file = translated([&]() -> const DataFile & { return file_of(stored.rank); });
    const std::int64_t most =
        std::min(max_bytes, manifest_[static_cast<std::size_t>(stored.rank)].data_bytes);
    if (stored.bytes > most)
        throw Error(
            VESCOMM_ERROR_INVALID_ARGUMENT,
            fmt::format("loading {}: the extra {} claims {} bytes; at most {} are possible",
                        in_quotes(folder_ + "/" + save_), in_quotes(name), stored.bytes, most));
    std::string bytes(static_cast<std::size_t>(stored.bytes), '\0');
    translated([&] {
        file.read(entry_name(name), VESCOMM_U8, stored.bytes, stored.checksums, 0,
                  std::as_writable_bytes(std::span(bytes)));
    });
    return bytes;
}

}  // namespace vescomm::fsdp::checkpoint
