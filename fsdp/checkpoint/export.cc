// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up, and a copy of every byte.
#include "fsdp/checkpoint/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "fsdp/checkpoint/error.h"
#include "fsdp/checkpoint/files.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"
#include "planner/formats/safetensors_header.h"

namespace vescomm::fsdp::checkpoint {
namespace {

namespace fs = std::filesystem;

// Memory for the bytes between two files; a multiple of the size of every type.
constexpr std::int64_t copied_bytes = std::int64_t{8} << 20;
constexpr const char *index_file = "model.safetensors.index.json";

using TensorList = std::vector<const StoredTensorPieces *>;

std::int64_t bytes_of_tensor(const Tensor &tensor) {
    return *formats::count_elements(tensor.shape) * formats::bytes_of(tensor.type);
}

// Splits the tensors of the role into files.
std::vector<TensorList> split(const Catalogue &catalogue, const ExportOptions &options) {
    std::vector<TensorList> files;
    std::int64_t bytes = 0;
    for (const auto &[key, stored] : catalogue.tensors()) {
        if (stored.tensor.role != options.role) continue;
        const std::int64_t size = bytes_of_tensor(stored.tensor);
        if (files.empty() || (bytes > 0 && size > options.max_file_bytes - bytes)) {
            files.emplace_back();
            bytes = 0;
        }
        files.back().push_back(&stored);
        bytes += size;
    }
    // Large types first, so that every tensor is aligned in a mapping of the file.
    for (TensorList &file : files)
        std::ranges::stable_sort(file, std::greater<>(), [](const StoredTensorPieces *stored) {
            return formats::bytes_of(stored->tensor.type);
        });
    return files;
}

void write_file(Checkpoint &checkpoint, const std::string &path, const TensorList &tensors,
                SystemCalls &calls) {
    std::vector<formats::StoredTensor> headers;
    std::int64_t offset = 0;
    for (const StoredTensorPieces *stored : tensors) {
        const Tensor &tensor = stored->tensor;
        const std::int64_t end = offset + bytes_of_tensor(tensor);
        headers.push_back({tensor.name, tensor.shape, tensor.type, offset, end});
        offset = end;
    }
    const std::string header = formats::make_safetensors_header(headers, in_quotes(path));
    OutputFile file(calls, path);
    file.write(std::as_bytes(std::span(header)));
    std::vector<std::byte> copied;
    for (const StoredTensorPieces *stored : tensors) {
        const std::int64_t bytes = bytes_of_tensor(stored->tensor);
        for (std::int64_t at = 0; at < bytes; at += copied_bytes) {
            copied.resize(static_cast<std::size_t>(std::min(copied_bytes, bytes - at)));
            checkpoint.read_bytes(*stored, at, copied);
            file.write(copied);
        }
    }
    file.finish();
}

std::string file_name(std::size_t number, std::size_t files) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", number, files);
}

// Writes all files into an existing folder.
void write_model(Checkpoint &checkpoint, const std::string &folder,
                 const std::vector<TensorList> &files, SystemCalls &calls) {
    nlohmann::json weight_map = nlohmann::json::object();
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < files.size(); ++i) {
        const std::string name = file_name(i + 1, files.size());
        write_file(checkpoint, folder + "/" + name, files[i], calls);
        for (const StoredTensorPieces *stored : files[i]) {
            weight_map[stored->tensor.name] = name;
            bytes += bytes_of_tensor(stored->tensor);
        }
    }
    const nlohmann::json index = {{"metadata", {{"total_size", bytes}}},
                                  {"weight_map", weight_map}};
    write_new_file(calls, folder + "/" + index_file, index.dump(2) + "\n");
    sync_folder(calls, folder);
}

}  // namespace

void export_safetensors(Checkpoint &checkpoint, const std::string &output,
                        const ExportOptions &options, SystemCalls &calls) {
    std::string target = output;
    while (target.size() > 1 && target.ends_with('/')) target.pop_back();
    const std::string where = "exporting to " + in_quotes(target);
    if (target.empty())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "exporting: the name of the output folder is empty; give one");
    if (options.max_file_bytes < 1)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("{}: give files of at least 1 byte, not {}", where,
                                options.max_file_bytes));
    std::vector<TensorList> files = split(checkpoint.catalogue(), options);
    // A model without parameters.
    if (checkpoint.catalogue().tensors().empty()) files.emplace_back();
    if (files.empty())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("{}: no tensor of the save has the role {}; give another role",
                                where, in_quotes(options.role)));
    if (!names_in(target).empty())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    where + ": the folder is not empty; choose another one, or empty it");

    const fs::path parent = fs::path(target).parent_path();
    if (!parent.empty()) make_folders(calls, parent.string());
    // A name of its own: what others have put beside the output is not touched.
    const std::string incomplete = make_unique_folder(calls, target + ".incomplete-");
    try {
        write_model(checkpoint, incomplete, files, calls);
        rename_file(calls, incomplete, target);
        sync_folder(calls, parent.empty() ? "." : parent.string());
    } catch (const std::exception &error) {
        try {
            remove_folder(calls, incomplete, index_file);
        } catch (const Error &) {
            // The first error is the cause.
        }
        if (dynamic_cast<const formats::InputError *>(&error) != nullptr)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, error.what());
        throw;
    }
}

}  // namespace vescomm::fsdp::checkpoint
