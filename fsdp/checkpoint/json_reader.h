// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Reads the members of JSON objects in files of a checkpoint, which are hostile until checked.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::fsdp::checkpoint {

// An object in a file. Throws formats::InputError, which begins with `where`, for a member that is
// missing or not of its type. `value` must outlive this object.
class JsonObject {
public:
    JsonObject(const nlohmann::json &value, std::string where);

    // Throws if there is a key that is not one of these.
    void require_keys(std::initializer_list<std::string_view> keys) const;
    // Throws unless the format is that of checkpoints, in a version that this library reads.
    void require_format() const;

    const std::string &text(const char *key) const;
    std::int64_t number(const char *key, std::int64_t low, std::int64_t high) const;
    std::vector<std::int64_t> numbers(const char *key) const;
    const nlohmann::json &list(const char *key) const;
    // 16 hexadecimal digits each.
    std::vector<std::uint64_t> checksums(const char *key) const;
    std::uint64_t checksum(const char *key) const;

    [[noreturn]] void refuse(const std::string &text) const;
    const std::string &where() const { return where_; }

private:
    const nlohmann::json &member(const char *key) const;
    std::uint64_t checksum_of(const nlohmann::json &value, const char *key) const;

    const nlohmann::json &value_;
    std::string where_;
};

// Returns the 16 hexadecimal digits of a checksum. JSON readers round numbers of 64 bits.
std::string hexadecimal(std::uint64_t checksum);

}  // namespace vescomm::fsdp::checkpoint
