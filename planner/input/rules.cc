// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/input/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "planner/formats/quoted.h"

namespace vescomm::planner {
namespace {

using formats::quoted_text;

// libstdc++ reads the number of \N and of {N} into a long without a check for overflow.
bool has_long_number(std::string_view text) {
    constexpr std::size_t digits_of_a_long = 18;
    std::size_t digits = 0;
    return std::any_of(text.begin(), text.end(), [&](unsigned char c) {
        digits = std::isdigit(c) ? digits + 1 : 0;
        return digits > digits_of_a_long;
    });
}

std::regex parse_regex(const std::string &text, const char *option) {
    if (text.empty()) throw InputError(fmt::format("{}: the expression is empty", option));
    if (has_long_number(text))
        throw InputError(fmt::format("{}: {} has a number of more than 18 digits; shorten it",
                                     option, quoted_text(text)));
    try {
        return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error &) {
        throw InputError(fmt::format(
            "{}: {} is no regular expression; close every ( and [, and write \\. for a dot", option,
            quoted_text(text)));
    }
}

bool found_in(const std::string &name, const std::regex &regex, std::smatch &match) {
    try {
        return std::regex_search(name, match, regex);
    } catch (const std::regex_error &) {
        throw InputError(
            fmt::format("the name {} is too much for a regular expression; write a "
                        "simpler one",
                        quoted_text(name)));
    }
}

// Matches "layers.12." at `at`. Returns the end of the number, or npos.
std::size_t end_of_layer(std::string_view name, std::size_t at) {
    constexpr std::string_view words[] = {"layers.", "h.", "blocks."};
    for (const std::string_view word : words) {
        if (!name.substr(at).starts_with(word)) continue;
        const std::size_t digits = at + word.size();
        const std::size_t end = name.find_first_not_of("0123456789", digits);
        if (end != digits && end != std::string_view::npos && name[end] == '.') return end;
    }
    return std::string_view::npos;
}

bool is_embedding(std::string_view name) {
    constexpr std::string_view words[] = {"embed_tokens",    "wte",   "tok_embeddings",
                                          "word_embeddings", "embed", "embedding"};
    for (std::size_t at = 0; at <= name.size();) {
        const std::size_t end = std::min(name.find('.', at), name.size());
        if (std::ranges::find(words, name.substr(at, end - at)) != std::end(words)) return true;
        at = end + 1;
    }
    return false;
}

// Returns true for names of all experts of a layer, such as "mlp.experts.gate_up_proj" or
// "block_sparse_moe.input_linear.weight", and false for a single one, such as
// "mlp.experts.7.down_proj".
bool holds_experts(std::string_view name) {
    constexpr std::string_view digits = "0123456789";
    bool found = false;
    for (std::size_t at = 0; at < name.size();) {
        const std::size_t end = std::min(name.find('.', at), name.size());
        const std::string_view part = name.substr(at, end - at);
        if (found && !part.empty() && part.find_first_not_of(digits) == std::string_view::npos)
            return false;
        found = found || part.find("expert") != std::string_view::npos ||
                part.find("moe") != std::string_view::npos;
        at = end + 1;
    }
    return found;
}

// The first dimension of a convolution, [outputs, inputs, width], counts rows, like that of a
// matrix. It is a batch dimension for stacked experts, and for a batch of one, such as an embedding
// of positions, [1, positions, width].
std::int32_t batch_dimensions_of(const InputTensor &input) {
    if (input.batch_dimensions) return *input.batch_dimensions;
    const auto dimensions = static_cast<std::int32_t>(input.shape.size());
    if (dimensions > 1 && std::string_view(input.name).ends_with("bias")) return dimensions - 1;
    if (dimensions < 3) return 0;
    return input.shape.front() == 1 || holds_experts(input.name) ? 1 : 0;
}

// Applies rules and counts their matches, so that rules without a match can be refused.
class Matcher {
public:
    explicit Matcher(const Rules &rules)
        : rules_(rules), block_matches_(rules.blocks.size()), unit_matches_(rules.units.size()) {}

    std::string unit_of(const InputTensor &tensor) {
        std::optional<std::string> unit;
        for (std::size_t i = 0; i < rules_.units.size(); ++i) {
            std::smatch match;
            if (!found_in(tensor.name, rules_.units[i].names, match)) continue;
            ++unit_matches_[i];
            if (!unit) unit = match.size() > 1 && match[1].matched ? match[1] : match[0];
        }
        if (!tensor.unit.empty()) return tensor.unit;
        return unit && !unit->empty() ? *unit : default_unit(tensor.name);
    }

    std::optional<std::int64_t> block_of(const InputTensor &tensor) {
        std::optional<std::int64_t> rows;
        for (std::size_t i = 0; i < rules_.blocks.size(); ++i) {
            std::smatch match;
            if (!found_in(tensor.name, rules_.blocks[i].names, match)) continue;
            ++block_matches_[i];
            rows = rules_.blocks[i].rows;
        }
        return rows;
    }

    void refuse_what_never_matched() const {
        for (std::size_t i = 0; i < rules_.blocks.size(); ++i)
            if (block_matches_[i] == 0) refuse("--block", rules_.blocks[i].text);
        for (std::size_t i = 0; i < rules_.units.size(); ++i)
            if (unit_matches_[i] == 0) refuse("--unit", rules_.units[i].text);
    }

private:
    [[noreturn]] static void refuse(const char *option, const std::string &text) {
        throw InputError(fmt::format("{} {}: no tensor's name matches; --json FILE lists the names",
                                     option, quoted_text(text)));
    }

    const Rules &rules_;
    std::vector<std::size_t> block_matches_;
    std::vector<std::size_t> unit_matches_;
};

Tensor to_tensor(const InputTensor &input, const Rules &rules, Matcher &matcher) {
    const auto dimensions = static_cast<std::int32_t>(input.shape.size());
    Tensor tensor;
    tensor.name = input.name;
    tensor.shape = input.shape;
    tensor.alignment = input.alignment;
    tensor.batch_dimensions = batch_dimensions_of(input);
    const std::optional<std::int64_t> ruled = matcher.block_of(input);
    const bool matrix = dimensions - tensor.batch_dimensions >= 2;
    tensor.block_rows =
        ruled.value_or(input.block_rows.value_or(matrix ? rules.block_rows : std::int64_t{1}));
    return tensor;
}

}  // namespace

BlockRule parse_block_rule(const std::string &text) {
    // The last =, because the expression may contain others.
    const std::size_t equals = text.rfind('=');
    const auto wrong = [&](const char *why) {
        return InputError(
            fmt::format("--block {}: {}; write REGEX=ROWS or REGEX=tensor, such as "
                        "'experts=128'",
                        quoted_text(text), why));
    };
    if (equals == std::string::npos) throw wrong("there is no =");
    const std::string_view value = std::string_view(text).substr(equals + 1);
    BlockRule rule{text, parse_regex(text.substr(0, equals), "--block"), -1};
    if (value == "tensor") return rule;
    const auto [end, failure] =
        std::from_chars(value.data(), value.data() + value.size(), rule.rows);
    if (failure != std::errc() || end != value.data() + value.size() || rule.rows < 1)
        throw wrong("what follows the = is no number of rows, and not \"tensor\"");
    return rule;
}

UnitRule parse_unit_rule(const std::string &text) {
    return {text, parse_regex(text, "--unit")};
}

std::string default_unit(std::string_view name) {
    for (std::size_t at = 0; at < name.size();) {
        const std::size_t end = end_of_layer(name, at);
        if (end != std::string_view::npos) return std::string(name.substr(0, end));
        const std::size_t dot = name.find('.', at);
        if (dot == std::string_view::npos) break;
        at = dot + 1;
    }
    return is_embedding(name) ? "embedding" : "rest";
}

Model make_model(const std::vector<InputTensor> &tensors, const Rules &rules) {
    if (rules.block_rows < 1)
        throw InputError(fmt::format("--block-rows {}: give at least 1 row", rules.block_rows));
    Matcher matcher(rules);
    Model model;
    std::map<std::string, std::map<vescomm_type_t, std::size_t>> units;
    for (const InputTensor &input : tensors) {
        const std::string name = matcher.unit_of(input);
        const auto [place, added] = units[name].emplace(input.type, model.units.size());
        if (added) model.units.push_back({name, input.type, {}});
        model.units[place->second].tensors.push_back(to_tensor(input, rules, matcher));
    }
    matcher.refuse_what_never_matched();
    return model;
}

}  // namespace vescomm::planner
