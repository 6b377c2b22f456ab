// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Fuzzes the parsers of numbers and rules of vescomm-plan (planner/input/sizes.h, rules.h).
//
//     byte 0    selects the parser for the rest
//
// Invariants: an accepted value is within its limits; an error is a sentence that names the option.
#include "fuzz/fuzz.h"
#include "planner/input/closest.h"
#include "planner/input/input.h"
#include "planner/input/rules.h"
#include "planner/input/sizes.h"

namespace {

using namespace vescomm::internal;
using namespace vescomm::planner;
using fuzz::require;

// Limits regular expressions, because long ones legitimately take long.
constexpr std::size_t max_rule_bytes = 24;

void read(std::size_t what, const std::string &text) {
    switch (what) {
        case 0:
            require(parse_bytes(text, "--option") >= 0, "bytes are not negative");
            break;
        case 1:
            require(parse_bandwidth(text, "--option") >= 1, "a link is not infinitely slow");
            break;
        case 2: {
            const std::int64_t count = parse_count(text, "--option", 3, 20'000'000);
            require(count >= 3 && count <= 20'000'000, "a count is in its range");
            break;
        }
        case 3: {
            const std::vector<double> numbers = parse_numbers(text, "--option", 2, 0.5, 64);
            require(numbers.size() == 2, "there are as many numbers as were asked for");
            for (const double number : numbers)
                require(number >= 0.5 && number <= 64, "a number is in its range");
            break;
        }
        case 4:
            // Ten million ranks are valid but slow.
            if (text.find('x') != std::string::npos && text.size() > 8) break;
            for (const std::int64_t weight : parse_weights(text, "--option"))
                require(weight >= 1, "a weight is positive");
            break;
        case 5: {
            if (text.size() > max_rule_bytes) break;
            const BlockRule rule = parse_block_rule(text);
            require(rule.rows == -1 || rule.rows >= 1, "blocks are rows, or the tensor");
            break;
        }
        case 6:
            if (text.size() > max_rule_bytes) break;
            (void)parse_unit_rule(text);
            break;
        case 7:
            require(!default_unit(text).empty(), "every tensor is in a unit");
            break;
        case 8:
            if (const auto type = type_named(text))
                require(type_named(name_of(*type)) == type, "a type has the name that it has");
            (void)packed_bits(text);
            break;
        default:
            (void)did_you_mean(text, {"--ranks", "--safetensors"});
            break;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const std::size_t what = input.below(10);
    try {
        read(what, std::string(input.rest()));
    } catch (const InputError &error) {
        fuzz::require_sentence(error.what());
        require(std::string_view(error.what()).starts_with("--"), "a sentence names the option");
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const auto seed = [](const char *name, char what, const std::string &text) {
        return Seed{name, what + text};
    };
    return {
        seed("bytes", 0, "1.5 GiB"),
        seed("bytes-plain", 0, "4096"),
        seed("bytes-too-many", 0, "99999999999TB"),
        seed("bandwidth", 1, "300 GB/s"),
        seed("bandwidth-bits", 1, "400Gbit"),
        seed("bandwidth-none", 1, "0"),
        seed("count", 2, "20,000,000"),
        seed("count-wrong-commas", 2, "2,0"),
        seed("numbers", 3, "1.5,64"),
        seed("numbers-control", 3, "1,\033[2J"),
        seed("weights", 4, "2,1,1"),
        seed("weights-times", 4, "2x8,1x8"),
        seed("block-rule", 5, "experts=128"),
        seed("block-rule-tensor", 5, "\\.mlp\\.=tensor"),
        seed("block-rule-no-regex", 5, "(=1"),
        seed("unit-rule", 6, "layers\\.(\\d+)"),
        seed("unit-layer", 7, "model.layers.12.mlp"),
        seed("unit-embedding", 7, "wte.weight"),
        seed("type", 8, "torch.bfloat16"),
        seed("type-packed", 8, "F6_E3M2"),
        seed("typing-mistake", 9, "--rank"),
    };
}
