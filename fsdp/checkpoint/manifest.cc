// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/manifest.h"

#include <fmt/format.h>

#include <charconv>

#include "fsdp/checkpoint/index.h"
#include "fsdp/checkpoint/json_reader.h"
#include "planner/formats/element_types.h"
#include "planner/formats/quoted.h"
#include "planner/formats/strict_json.h"

namespace vescomm::fsdp::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view save_prefix = "save-";
constexpr std::size_t save_digits = 10;

std::string checksum_of_list(const json &list) {
    return hexadecimal(checksum_of(list.dump()));
}

}  // namespace

std::string to_json(const Manifest &manifest) {
    json files = json::array();
    for (const RankFiles &rank : manifest)
        files.push_back({{"data_bytes", rank.data_bytes},
                         {"index_bytes", rank.index_bytes},
                         {"index_checksum", hexadecimal(rank.index_checksum)}});
    const json values = {{"format", format_name},
                         {"version", format_version},
                         {"ranks", files},
                         {"checksum", checksum_of_list(files)}};
    return values.dump() + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string &where) {
    const json values = formats::parse_strictly(text, where, {.depth = 3});
    const JsonObject object(values, where);
    object.require_format();
    object.require_keys({"format", "version", "ranks", "checksum"});
    const json &files = object.list("ranks");
    if (files.empty() || files.size() > static_cast<std::size_t>(max_ranks))
        object.refuse(fmt::format("it lists the files of {} ranks; 1 to {} are allowed",
                                  files.size(), max_ranks));
    Manifest manifest;
    for (const json &value : files) {
        const JsonObject entry(value, where);
        entry.require_keys({"data_bytes", "index_bytes", "index_checksum"});
        manifest.push_back({entry.number("data_bytes", 0, formats::max_elements),
                            entry.number("index_bytes", 0, max_index_bytes),
                            entry.checksum("index_checksum")});
    }
    if (object.text("checksum") != checksum_of_list(files))
        object.refuse("its checksum does not match its contents; the file is damaged");
    return manifest;
}

std::string latest_to_json(const std::string &save) {
    const json values = {{"format", format_name}, {"version", format_version}, {"save", save}};
    return values.dump() + "\n";
}

std::string parse_latest(std::string_view text, const std::string &where) {
    const json values = formats::parse_strictly(text, where, {.depth = 1, .values = 16});
    const JsonObject object(values, where);
    object.require_format();
    object.require_keys({"format", "version", "save"});
    const std::string &save = object.text("save");
    if (!save_number(save))
        object.refuse(fmt::format("save is {}; it must be such as \"{}\"",
                                  formats::quoted_text(save), save_name(1)));
    return save;
}

std::string data_file_of(int rank) {
    return fmt::format("rank-{:05}.safetensors", rank);
}

std::string index_file_of(int rank) {
    return fmt::format("rank-{:05}.json", rank);
}

std::string save_name(std::uint64_t number) {
    return fmt::format("{}{:0{}}", save_prefix, number, save_digits);
}

std::optional<std::uint64_t> save_number(std::string_view name) {
    if (!name.starts_with(save_prefix)) return std::nullopt;
    const std::string_view digits = name.substr(save_prefix.size());
    std::uint64_t number = 0;
    const auto [end, failure] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    // One number has one name.
    if (failure != std::errc() || end != digits.data() + digits.size() || number == 0 ||
        save_name(number) != name)
        return std::nullopt;
    return number;
}

}  // namespace vescomm::fsdp::checkpoint
