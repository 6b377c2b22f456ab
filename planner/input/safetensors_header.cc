// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
//     {"name": {"dtype": "BF16", "shape": [4096, 4096], "data_offsets": [0, 33554432]}, ...,
//      "__metadata__": {"format": "pt"}}
//
// Zone: set-up.
#include <fmt/format.h>

#include <algorithm>

#include "planner/input/safetensors.h"
#include "planner/input/strict_json.h"

namespace vescomm::planner {
namespace {

using nlohmann::json;

struct Entry {
    InputTensor tensor;
    std::int64_t begin = 0;  // bytes of data
    std::int64_t end = 0;
};

class Reader {
public:
    Reader(const std::string &where, std::int64_t data_bytes)
        : where_(where), data_bytes_(data_bytes) {}

    Entry read(const std::string &name, const json &value) {
        name_ = &name;
        if (name.size() > longest_name)
            refuse("its name has {} bytes; the longest allowed is {}", name.size(), longest_name);
        if (!value.is_object()) refuse("it is {}, not an object", quoted_value(value));
        for (const auto &[key, ignored] : value.items())
            if (key != "dtype" && key != "shape" && key != "data_offsets")
                refuse("it has the key {}; there are only dtype, shape and data_offsets",
                       quoted_text(key));
        Entry entry;
        entry.tensor.name = name;
        entry.tensor.shape = read_numbers(value, "shape");
        if (entry.tensor.shape.size() > max_dimensions)
            refuse("it has {} dimensions; the most allowed is {}", entry.tensor.shape.size(),
                   max_dimensions);
        read_type(value, entry.tensor);
        const std::vector<std::int64_t> offsets = read_numbers(value, "data_offsets");
        if (offsets.size() != 2)
            refuse("data_offsets has {} numbers; it must have 2, begin and end", offsets.size());
        entry.begin = offsets[0];
        entry.end = offsets[1];
        check_bytes(entry);
        return entry;
    }

private:
    template <typename... Values>
    [[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) const {
        throw InputError(fmt::format("{}: tensor {}: {}", where_, quoted_text(*name_),
                                     fmt::format(format, std::forward<Values>(values)...)));
    }

    const json &member(const json &value, const char *key) const {
        const auto found = value.find(key);
        if (found == value.end()) refuse("{} is missing", key);
        return *found;
    }

    void read_type(const json &value, InputTensor &tensor) const {
        const json &type = member(value, "dtype");
        if (!type.is_string()) refuse("dtype is {}, not a text", quoted_value(type));
        const auto &text = type.get_ref<const std::string &>();
        if (const auto type = type_named(text)) {
            tensor.type = *type;
        } else if (const auto bits = packed_bits(text)) {
            if (!count_bytes(tensor.shape, *bits))
                refuse("its rows, of {} bits for each element, do not end with a byte", *bits);
            tensor.type = VESCOMM_U8;
        } else {
            refuse(
                "dtype {} is none that vescomm has ({}); convert the tensor, or describe its bytes "
                "with --tensors, as u8",
                quoted_text(text), type_names());
        }
    }

    std::vector<std::int64_t> read_numbers(const json &value, const char *key) const {
        const json &list = member(value, key);
        if (!list.is_array()) refuse("{} is {}, not a list of numbers", key, quoted_value(list));
        std::vector<std::int64_t> numbers;
        for (const json &number : list) {
            if (!number.is_number_unsigned() || number.get<std::uint64_t>() > max)
                refuse("{} has {}; it must have whole numbers from 0 to 2^62", key,
                       quoted_value(number));
            numbers.push_back(number.get<std::int64_t>());
        }
        return numbers;
    }

    void check_bytes(const Entry &entry) const {
        const std::vector<std::int64_t> &shape = entry.tensor.shape;
        const std::optional<std::int64_t> elements = count_elements(shape);
        const std::int64_t size = bytes_of(entry.tensor.type);
        if (!elements || *elements > static_cast<std::int64_t>(max) / size)
            refuse("a shape of {} dimensions makes more than 2^62 bytes", shape.size());
        if (entry.begin > entry.end || entry.end - entry.begin != *elements * size)
            refuse(
                "data_offsets [{}, {}] do not hold the {} bytes of its {} elements; the file "
                "is damaged",
                entry.begin, entry.end, *elements * size, *elements);
        if (entry.end > data_bytes_)
            refuse(
                "its data ends at byte {}, and the file has only {} bytes of data; the file is "
                "cut short, download it again",
                entry.end, data_bytes_);
    }

    static constexpr std::uint64_t max = std::uint64_t{1} << 62;
    const std::string &where_;
    std::int64_t data_bytes_;
    const std::string *name_ = nullptr;
};

// Checks that every byte of data belongs to one tensor: no overlap, no gap, nothing after the last.
void check_cover(const std::vector<Entry> &entries, std::int64_t data_bytes,
                 const std::string &where) {
    std::int64_t covered = 0;
    const Entry *previous = nullptr;
    for (const Entry &entry : entries) {
        if (entry.begin < covered)
            throw InputError(fmt::format(
                "{}: tensors {} and {} overlap: the second begins at byte {}, and the first ends "
                "at {}; the file is damaged",
                where, quoted_text(previous->tensor.name), quoted_text(entry.tensor.name),
                entry.begin, covered));
        if (entry.begin > covered)
            throw InputError(fmt::format(
                "{}: bytes {} to {}, before tensor {}, belong to no tensor; the file is damaged",
                where, covered, entry.begin, quoted_text(entry.tensor.name)));
        covered = entry.end;
        previous = &entry;
    }
    if (covered != data_bytes)
        throw InputError(fmt::format(
            "{}: the last {} of {} bytes of data belong to no tensor; the file is damaged", where,
            data_bytes - covered, data_bytes));
}

}  // namespace

std::vector<InputTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                  const std::string &where) {
    const json values = parse_strictly(header, where, {.depth = 3});
    if (!values.is_object())
        throw InputError(
            fmt::format("{}: the header is {}, not an object", where, quoted_value(values)));
    Reader reader(where, data_bytes);
    std::vector<Entry> entries;
    for (const auto &[name, value] : values.items())
        if (name != "__metadata__") entries.push_back(reader.read(name, value));
    // By end as well, so that a tensor without elements precedes the one that starts at its offset.
    std::ranges::sort(entries, {},
                      [](const Entry &entry) { return std::pair(entry.begin, entry.end); });
    check_cover(entries, data_bytes, where);
    std::vector<InputTensor> tensors;
    tensors.reserve(entries.size());
    for (Entry &entry : entries) tensors.push_back(std::move(entry.tensor));
    return tensors;
}

}  // namespace vescomm::planner
