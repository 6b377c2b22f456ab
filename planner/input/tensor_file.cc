// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/tensor_file.h"

#include <fmt/format.h>

#include <unordered_set>

#include "planner/formats/quoted.h"
#include "planner/formats/strict_json.h"

namespace vescomm::planner {
namespace {

using formats::parse_strictly;
using formats::quoted_text;
using formats::quoted_value;
using nlohmann::json;

class Reader {
public:
    explicit Reader(std::string where) : where_(std::move(where)) {}

    InputTensor read(const json &value) {
        if (!value.is_object()) refuse("it is {}, not an object", quoted_value(value));
        InputTensor tensor;
        tensor.name = text(value, "name").value_or("");
        if (tensor.name.empty())
            refuse("\"name\" is missing or empty; every tensor needs one of its own");
        where_ += " (" + quoted_text(tensor.name) + ")";
        if (tensor.name.size() > longest_name)
            refuse("its name has {} bytes; the longest allowed is {}", tensor.name.size(),
                   longest_name);
        for (const auto &[key, ignored] : value.items()) check_key(key);
        tensor.shape = shape(value);
        if (const auto name = text(value, "dtype")) read_type(*name, tensor);
        read_block(value, tensor);
        const auto dimensions = static_cast<std::int64_t>(tensor.shape.size());
        // A list is explicit: batch dimensions are not guessed from names.
        tensor.batch_dimensions =
            static_cast<std::int32_t>(number(value, "batch_dims", 0, dimensions).value_or(0));
        tensor.alignment = number(value, "align", 0, std::int64_t{1} << 30).value_or(0);
        tensor.unit = text(value, "unit").value_or("");
        return tensor;
    }

private:
    template <typename... Values>
    [[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) const {
        throw InputError(where_ + ": " + fmt::format(format, std::forward<Values>(values)...));
    }

    void check_key(const std::string &key) const {
        constexpr std::string_view known[] = {"name",  "shape",      "dtype", "block_rows",
                                              "block", "batch_dims", "align", "unit"};
        for (const std::string_view name : known)
            if (key == name) return;
        refuse(
            "there is no key {}; there are name, shape, dtype, block_rows, block, batch_dims, "
            "align and unit",
            quoted_text(key));
    }

    std::optional<std::string> text(const json &value, const char *key) const {
        const auto found = value.find(key);
        if (found == value.end()) return std::nullopt;
        if (!found->is_string()) refuse("\"{}\" is {}, not a text", key, quoted_value(*found));
        return found->get<std::string>();
    }

    std::int64_t whole(const json &value, const char *key, std::int64_t low,
                       std::int64_t high) const {
        const bool fits = value.is_number_unsigned() &&
                          value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high) &&
                          value.get<std::int64_t>() >= low;
        if (!fits)
            refuse("\"{}\" has {}; give a whole number from {} to {}", key, quoted_value(value),
                   low, high);
        return value.get<std::int64_t>();
    }

    std::optional<std::int64_t> number(const json &value, const char *key, std::int64_t low,
                                       std::int64_t high) const {
        const auto found = value.find(key);
        if (found == value.end()) return std::nullopt;
        return whole(*found, key, low, high);
    }

    void read_type(const std::string &name, InputTensor &tensor) const {
        if (const auto type = type_named(name)) {
            tensor.type = *type;
        } else if (const auto bits = packed_bits(name)) {
            if (!count_bytes(tensor.shape, *bits))
                refuse("its rows, of {} bits for each element, do not end with a byte", *bits);
            tensor.type = VESCOMM_U8;
        } else {
            refuse("\"dtype\" is {}; give one of {}", quoted_text(name), type_names());
        }
    }

    std::vector<std::int64_t> shape(const json &value) const {
        const auto found = value.find("shape");
        if (found == value.end()) refuse("\"shape\" is missing; give a list such as [4096, 4096]");
        if (!found->is_array())
            refuse("\"shape\" is {}; give a list such as [4096, 4096]", quoted_value(*found));
        if (found->size() > max_dimensions)
            refuse("\"shape\" has {} dimensions; the most allowed is {}", found->size(),
                   max_dimensions);
        std::vector<std::int64_t> extents;
        for (const json &extent : *found)
            extents.push_back(whole(extent, "shape", 0, max_elements));
        if (!count_elements(extents)) refuse("\"shape\" makes more than 2^62 elements");
        return extents;
    }

    void read_block(const json &value, InputTensor &tensor) const {
        tensor.block_rows = number(value, "block_rows", 1, max_elements);
        const auto block = text(value, "block");
        if (!block) return;
        if (*block != "tensor")
            refuse(
                "\"block\" is {}; it can only be \"tensor\", which keeps the tensor on one "
                "rank; for rows use \"block_rows\"",
                quoted_text(*block));
        if (tensor.block_rows) refuse("it has both \"block\" and \"block_rows\"; give one");
        tensor.block_rows = -1;
    }

    std::string where_;
};

}  // namespace

std::vector<InputTensor> parse_tensor_list(std::string_view text, const std::string &where) {
    const json values = parse_strictly(text, where);
    const auto list = values.is_object() ? values.find("tensors") : values.end();
    if (list == values.end() || !list->is_array())
        throw InputError(where + R"(: there is no list {"tensors": [...]})");
    for (const auto &[key, ignored] : values.items())
        if (key != "tensors")
            throw InputError(
                fmt::format("{}: there is no key {} beside \"tensors\"", where, quoted_text(key)));
    std::vector<InputTensor> tensors;
    std::unordered_set<std::string> names;
    for (std::size_t i = 0; i < list->size(); ++i) {
        const std::string place = fmt::format("{}: tensors[{}]", where, i);
        tensors.push_back(Reader(place).read((*list)[i]));
        if (!names.insert(tensors.back().name).second)
            throw InputError(fmt::format("{}: the name {} is there already; names must be unique",
                                         place, quoted_text(tensors.back().name)));
    }
    return tensors;
}

std::vector<InputTensor> read_tensor_file(const std::string &path) {
    const std::string where = "file " + quoted_text(path);
    return parse_tensor_list(read_text_file(path, where), where);
}

}  // namespace vescomm::planner
