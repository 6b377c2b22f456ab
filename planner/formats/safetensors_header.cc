// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/formats/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "planner/formats/element_types.h"
#include "planner/formats/input_error.h"
#include "planner/formats/quoted.h"
#include "planner/formats/strict_json.h"

namespace vescomm::formats {
namespace {

using nlohmann::json;

class Reader {
public:
    Reader(const std::string &where, std::int64_t data_bytes)
        : where_(where), data_bytes_(data_bytes) {}

    StoredTensor read(const std::string &name, const json &value) {
        name_ = &name;
        if (name.size() > longest_name)
            refuse("its name has {} bytes; the longest allowed is {}", name.size(), longest_name);
        if (!value.is_object()) refuse("it is {}, not an object", quoted_value(value));
        for (const auto &[key, ignored] : value.items())
            if (key != "dtype" && key != "shape" && key != "data_offsets")
                refuse("it has the key {}; there are only dtype, shape and data_offsets",
                       quoted_text(key));
        StoredTensor tensor;
        tensor.name = name;
        tensor.shape = read_numbers(value, "shape");
        if (tensor.shape.size() > max_dimensions)
            refuse("it has {} dimensions; the most allowed is {}", tensor.shape.size(),
                   max_dimensions);
        read_type(value, tensor);
        const std::vector<std::int64_t> offsets = read_numbers(value, "data_offsets");
        if (offsets.size() != 2)
            refuse("data_offsets has {} numbers; it must have 2, begin and end", offsets.size());
        tensor.begin = offsets[0];
        tensor.end = offsets[1];
        check_bytes(tensor);
        return tensor;
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

    void read_type(const json &value, StoredTensor &tensor) const {
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

    void check_bytes(const StoredTensor &tensor) const {
        const std::vector<std::int64_t> &shape = tensor.shape;
        const std::optional<std::int64_t> elements = count_elements(shape);
        const std::int64_t size = bytes_of(tensor.type);
        if (!elements || *elements > static_cast<std::int64_t>(max) / size)
            refuse("a shape of {} dimensions makes more than 2^62 bytes", shape.size());
        if (tensor.begin > tensor.end || tensor.end - tensor.begin != *elements * size)
            refuse(
                "data_offsets [{}, {}] do not hold the {} bytes of its {} elements; the file "
                "is damaged",
                tensor.begin, tensor.end, *elements * size, *elements);
        if (tensor.end > data_bytes_)
            refuse(
                "its data ends at byte {}, and the file has only {} bytes of data; the file is "
                "cut short, download it again",
                tensor.end, data_bytes_);
    }

    static constexpr std::uint64_t max = std::uint64_t{1} << 62;
    const std::string &where_;
    std::int64_t data_bytes_;
    const std::string *name_ = nullptr;
};

// Checks that every byte of data belongs to one tensor: no overlap, no gap, nothing after the last.
void check_cover(const std::vector<StoredTensor> &tensors, std::int64_t data_bytes,
                 const std::string &where) {
    std::int64_t covered = 0;
    const StoredTensor *previous = nullptr;
    for (const StoredTensor &tensor : tensors) {
        if (tensor.begin < covered)
            throw InputError(fmt::format(
                "{}: tensors {} and {} overlap: the second begins at byte {}, and the first ends "
                "at {}; the file is damaged",
                where, quoted_text(previous->name), quoted_text(tensor.name), tensor.begin,
                covered));
        if (tensor.begin > covered)
            throw InputError(fmt::format(
                "{}: bytes {} to {}, before tensor {}, belong to no tensor; the file is damaged",
                where, covered, tensor.begin, quoted_text(tensor.name)));
        covered = tensor.end;
        previous = &tensor;
    }
    if (covered != data_bytes)
        throw InputError(fmt::format(
            "{}: the last {} of {} bytes of data belong to no tensor; the file is damaged", where,
            data_bytes - covered, data_bytes));
}

}  // namespace

std::int64_t safetensors_header_bytes(std::string_view first_bytes, std::int64_t file_bytes,
                                      const std::string &where) {
    if (file_bytes < safetensors_length_bytes ||
        first_bytes.size() < static_cast<std::size_t>(safetensors_length_bytes))
        throw InputError(
            fmt::format("{} has {} bytes; it must begin with the length of its header, 8 bytes",
                        where, file_bytes));
    std::uint64_t length = 0;
    for (std::size_t i = safetensors_length_bytes; i-- > 0;)
        length = length << 8 | static_cast<unsigned char>(first_bytes[i]);
    if (length > longest_safetensors_header)
        throw InputError(fmt::format(
            "{} claims a header of {} bytes, and the most allowed is {}; it is no safetensors file",
            where, length, longest_safetensors_header));
    const std::int64_t present = file_bytes - safetensors_length_bytes;
    if (static_cast<std::int64_t>(length) > present)
        throw InputError(
            fmt::format("{} is cut short: its header has {} bytes, and only {} are "
                        "there; download it again",
                        where, length, present));
    return static_cast<std::int64_t>(length);
}

std::vector<StoredTensor> parse_safetensors_header(std::string_view header, std::int64_t data_bytes,
                                                   const std::string &where) {
    const json values = parse_strictly(header, where, {.depth = 3});
    if (!values.is_object())
        throw InputError(
            fmt::format("{}: the header is {}, not an object", where, quoted_value(values)));
    Reader reader(where, data_bytes);
    std::vector<StoredTensor> tensors;
    for (const auto &[name, value] : values.items())
        if (name != "__metadata__") tensors.push_back(reader.read(name, value));
    // By end as well, so that a tensor without elements precedes the one that starts at its offset.
    std::ranges::sort(tensors, {}, [](const StoredTensor &tensor) {
        return std::pair(tensor.begin, tensor.end);
    });
    check_cover(tensors, data_bytes, where);
    return tensors;
}

std::string make_safetensors_header(const std::vector<StoredTensor> &tensors,
                                    const std::string &where) {
    nlohmann::ordered_json values = nlohmann::ordered_json::object();
    values["__metadata__"] = {{"format", "pt"}};
    std::unordered_set<std::string_view> names = {"__metadata__"};
    for (const StoredTensor &tensor : tensors) {
        const auto type = safetensors_name_of(tensor.type);
        if (!type)
            throw InputError(fmt::format(
                "{}: tensor {}: the format safetensors has no type {}; store it as another type",
                where, quoted_text(tensor.name), name_of(tensor.type)));
        if (!names.insert(tensor.name).second)
            throw InputError(fmt::format("{}: the name {} is there twice; names must be unique",
                                         where, quoted_text(tensor.name)));
        // ordered_json searches keys one by one; push_back() does not.
        values.get_ref<nlohmann::ordered_json::object_t &>().push_back(
            {tensor.name,
             {{"dtype", *type},
              {"shape", tensor.shape},
              {"data_offsets", {tensor.begin, tensor.end}}}});
    }
    std::string header;
    try {
        header = values.dump();
    } catch (const json::exception &) {
        throw InputError(where + ": the name of a tensor is no UTF-8, which safetensors requires");
    }
    // The data then begins at a multiple of 8 bytes, so that its tensors are aligned in a mapping.
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string bytes;
    for (std::size_t i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i));
    return bytes + header;
}

}  // namespace vescomm::formats
