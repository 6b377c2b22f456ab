// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "fsdp/checkpoint/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "fsdp/checkpoint/index.h"
#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"
#include "planner/formats/quoted.h"
#include "planner/formats/strict_json.h"

namespace vescomm::fsdp::checkpoint {

using formats::quoted_text;
using formats::quoted_value;
using nlohmann::json;

JsonObject::JsonObject(const json &value, std::string where)
    : value_(value), where_(std::move(where)) {
    if (!value_.is_object())
        refuse(fmt::format("there is {} instead of an object", quoted_value(value)));
}

void JsonObject::refuse(const std::string &text) const {
    throw formats::InputError(where_ + ": " + text);
}

const json &JsonObject::member(const char *key) const {
    const auto found = value_.find(key);
    if (found == value_.end()) refuse(fmt::format("{} is missing", key));
    return *found;
}

void JsonObject::require_keys(std::initializer_list<std::string_view> keys) const {
    for (const auto &[key, ignored] : value_.items())
        if (std::ranges::find(keys, std::string_view(key)) == keys.end())
            refuse(fmt::format("the key {} is unknown", quoted_text(key)));
}

void JsonObject::require_format() const {
    if (text("format") != format_name)
        refuse(fmt::format("format is {}, not \"{}\"; this is no checkpoint of vescomm",
                           quoted_text(text("format")), format_name));
    const std::int64_t version = number("version", 1, formats::max_elements);
    if (version > format_version)
        refuse(
            fmt::format("version {} of the format is newer than {}, the newest that this "
                        "library reads; load it with a newer library",
                        version, format_version));
}

const std::string &JsonObject::text(const char *key) const {
    const json &value = member(key);
    if (!value.is_string()) refuse(fmt::format("{} is {}, not a text", key, quoted_value(value)));
    return value.get_ref<const std::string &>();
}

std::int64_t JsonObject::number(const char *key, std::int64_t low, std::int64_t high) const {
    const json &value = member(key);
    if (!value.is_number_unsigned() ||
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(high) ||
        value.get<std::int64_t>() < low)
        refuse(fmt::format("{} is {}; it must be a whole number from {} to {}", key,
                           quoted_value(value), low, high));
    return value.get<std::int64_t>();
}

std::vector<std::int64_t> JsonObject::numbers(const char *key) const {
    std::vector<std::int64_t> numbers;
    for (const json &value : list(key)) {
        if (!value.is_number_unsigned() ||
            value.get<std::uint64_t>() > static_cast<std::uint64_t>(formats::max_elements))
            refuse(fmt::format("{} has {}; it must have whole numbers from 0 to 2^62", key,
                               quoted_value(value)));
        numbers.push_back(value.get<std::int64_t>());
    }
    return numbers;
}

const json &JsonObject::list(const char *key) const {
    const json &value = member(key);
    if (!value.is_array()) refuse(fmt::format("{} is {}, not a list", key, quoted_value(value)));
    return value;
}

std::uint64_t JsonObject::checksum_of(const json &value, const char *key) const {
    constexpr std::size_t digits = 16;
    std::uint64_t checksum = 0;
    if (value.is_string()) {
        const auto &text = value.get_ref<const std::string &>();
        const char *end = text.data() + text.size();
        const auto [stop, failure] = std::from_chars(text.data(), end, checksum, 16);
        if (text.size() == digits && failure == std::errc() && stop == end) return checksum;
    }
    refuse(fmt::format("{} has {}; a checksum has {} hexadecimal digits", key, quoted_value(value),
                       digits));
}

std::vector<std::uint64_t> JsonObject::checksums(const char *key) const {
    std::vector<std::uint64_t> checksums;
    for (const json &value : list(key)) checksums.push_back(checksum_of(value, key));
    return checksums;
}

std::uint64_t JsonObject::checksum(const char *key) const {
    return checksum_of(member(key), key);
}

std::string hexadecimal(std::uint64_t checksum) {
    return fmt::format("{:016x}", checksum);
}

}  // namespace vescomm::fsdp::checkpoint
