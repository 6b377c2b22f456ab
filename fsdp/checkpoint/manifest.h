// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The names and the small files of a folder of checkpoints:
//
//     latest                         names the newest save; its rename commits a save
//     save-0000000012/
//         manifest.json              sizes and checksums of the other files
//         rank-00000.safetensors     the pieces of rank 0
//         rank-00000.json            their index (index.h)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::fsdp::checkpoint {

// The files of one rank.
struct RankFiles {
    std::int64_t data_bytes = 0;  // size of the safetensors file
    std::int64_t index_bytes = 0;
    std::uint64_t index_checksum = 0;

    bool operator==(const RankFiles &) const = default;
};

// The files of all ranks, by rank.
using Manifest = std::vector<RankFiles>;

std::string to_json(const Manifest &manifest);
// Throws formats::InputError, also if the manifest's own checksum differs.
Manifest parse_manifest(std::string_view text, const std::string &where);

// The contents of the file `latest`.
std::string latest_to_json(const std::string &save);
// Returns the name of a save. Throws formats::InputError.
std::string parse_latest(std::string_view text, const std::string &where);

constexpr const char *latest_file = "latest";
constexpr const char *manifest_file = "manifest.json";
std::string data_file_of(int rank);
std::string index_file_of(int rank);

// Saves are numbered from 1 on; a larger number is newer.
std::string save_name(std::uint64_t number);
// Returns the number of a save, or nothing if `name` is not the name of one.
std::optional<std::uint64_t> save_number(std::string_view name);

}  // namespace vescomm::fsdp::checkpoint
