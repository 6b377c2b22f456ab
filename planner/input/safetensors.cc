// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <unordered_map>

#include "planner/formats/quoted.h"
#include "planner/formats/safetensors_header.h"
#include "planner/formats/strict_json.h"

namespace vescomm::planner {
namespace {

using formats::parse_strictly;
using formats::quoted_text;
using formats::quoted_value;

namespace fs = std::filesystem;

std::string quoted_path(const fs::path &path) {
    return quoted_text(path.string());
}

std::vector<InputTensor> read_file(const fs::path &path) {
    const std::string where = "safetensors file " + quoted_path(path);
    std::ifstream file(path, std::ios::binary);
    std::error_code failure;
    const std::uintmax_t size = fs::file_size(path, failure);
    if (!file || failure) throw InputError(where + " cannot be read");
    const auto file_bytes = static_cast<std::int64_t>(size);
    std::string first(formats::safetensors_length_bytes, '\0');
    file.read(first.data(), static_cast<std::streamsize>(first.size()));
    first.resize(static_cast<std::size_t>(file.gcount()));
    file.clear();
    const std::int64_t length = formats::safetensors_header_bytes(first, file_bytes, where);
    std::string header(static_cast<std::size_t>(length), '\0');
    if (!file.read(header.data(), static_cast<std::streamsize>(length)))
        throw InputError(where + " cannot be read");
    const std::int64_t data_bytes = file_bytes - formats::safetensors_length_bytes - length;
    return parse_safetensors_header(header, data_bytes, where);
}

std::vector<fs::path> files_in(const fs::path &folder) {
    std::vector<fs::path> files;
    std::error_code failure;
    for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
         entry.increment(failure))
        if (entry->path().extension() == ".safetensors") files.push_back(entry->path());
    if (failure)
        throw InputError(
            fmt::format("folder {} cannot be read: {}", quoted_path(folder), failure.message()));
    if (files.empty())
        throw InputError(fmt::format("folder {} has no *.safetensors files", quoted_path(folder)));
    std::ranges::sort(files);
    return files;
}

// Returns the files that an index lists. The folder may hold other files, such as a second format
// of the same weights.
std::vector<fs::path> files_of_index(const fs::path &index) {
    const std::string where = "index " + quoted_path(index);
    std::vector<fs::path> files;
    for (const std::string &name :
         parse_safetensors_index(read_text_file(index.string(), where), where))
        files.push_back(index.parent_path() / name);
    return files;
}

}  // namespace

std::vector<InputTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                  const std::string &where) {
    std::vector<InputTensor> tensors;
    for (formats::StoredTensor &stored :
         formats::parse_safetensors_header(header, data_bytes, where)) {
        InputTensor &tensor = tensors.emplace_back();
        tensor.name = std::move(stored.name);
        tensor.shape = std::move(stored.shape);
        tensor.type = stored.type;
    }
    return tensors;
}

std::vector<std::string> parse_safetensors_index(std::string_view text, const std::string &where) {
    const nlohmann::json values = parse_strictly(text, where);
    const auto map = values.is_object() ? values.find("weight_map") : values.end();
    if (map == values.end() || !map->is_object())
        throw InputError(where + " has no object weight_map, which gives the file of each tensor");
    std::vector<std::string> files;
    for (const auto &[name, value] : map->items()) {
        const std::string file = value.is_string() ? value.get<std::string>() : std::string();
        if (file.empty() || file == "." || file == ".." || file.find('\0') != std::string::npos ||
            fs::path(file).filename() != file)
            throw InputError(
                fmt::format("{}: the file of tensor {} is {}; it must be the name of "
                            "a file in the same folder",
                            where, quoted_text(name), quoted_value(value)));
        files.push_back(file);
    }
    std::ranges::sort(files);
    files.erase(std::unique(files.begin(), files.end()), files.end());
    return files;
}

bool natural_less(std::string_view a, std::string_view b) {
    const auto digit = [](std::string_view text, std::size_t i) {
        return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    };
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < a.size() && j < b.size()) {
        if (!digit(a, i) || !digit(b, j)) {
            if (a[i] != b[j]) return a[i] < b[j];
            ++i, ++j;
            continue;
        }
        // Without leading zeros the longer number is the larger one.
        while (digit(a, i + 1) && a[i] == '0') ++i;
        while (digit(b, j + 1) && b[j] == '0') ++j;
        std::size_t end_a = i;
        std::size_t end_b = j;
        while (digit(a, end_a)) ++end_a;
        while (digit(b, end_b)) ++end_b;
        if (end_a - i != end_b - j) return end_a - i < end_b - j;
        const int order = a.substr(i, end_a - i).compare(b.substr(j, end_b - j));
        if (order != 0) return order < 0;
        i = end_a, j = end_b;
    }
    // "a1" and "a01" must not be equal.
    return a.size() - i != b.size() - j ? a.size() - i < b.size() - j : a < b;
}

std::vector<InputTensor> read_safetensors(const std::string &path) {
    std::error_code failure;
    std::vector<fs::path> files = {path};
    if (fs::is_directory(path, failure)) {
        const fs::path index = fs::path(path) / "model.safetensors.index.json";
        files = fs::exists(index, failure) ? files_of_index(index) : files_in(path);
    } else if (!fs::exists(path, failure)) {
        throw InputError(fmt::format("there is no file or folder {}", quoted_path(path)));
    }
    std::vector<InputTensor> tensors;
    std::unordered_map<std::string, fs::path> origins;
    for (const fs::path &file : files) {
        for (InputTensor &tensor : read_file(file)) {
            const auto [origin, added] = origins.emplace(tensor.name, file);
            if (!added)
                throw InputError(fmt::format(
                    "tensor {} is in both {} and {}; the folder holds "
                    "more than one model, give one file or move the rest",
                    quoted_text(tensor.name), quoted_path(origin->second), quoted_path(file)));
            tensors.push_back(std::move(tensor));
        }
    }
    std::ranges::stable_sort(tensors, natural_less, &InputTensor::name);
    return tensors;
}

}  // namespace vescomm::planner
