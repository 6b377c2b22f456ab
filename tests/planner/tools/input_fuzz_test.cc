// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// For any bytes, the readers return tensors or throw InputError. Mutations of valid input reach
// deep into the readers. Sanitizers make this test more effective.
#include <gtest/gtest.h>

#include <random>

#include "planner/input/rules.h"
#include "planner/input/safetensors.h"
#include "planner/input/tensor_file.h"

namespace vescomm::planner {
namespace {

constexpr int rounds = 20'000;

// Tokens that are meaningful to the readers.
constexpr std::string_view words[] = {"{",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      ":",
                                      "\"",
                                      "-1",
                                      "1e309",
                                      "0",
                                      "null",
                                      "true",
                                      "4294967296",
                                      "9223372036854775808",
                                      "\\u0",
                                      "\"dtype\"",
                                      "\"BF16\"",
                                      "\"F4\"",
                                      "\xff",
                                      "\"shape\"",
                                      "\"name\"",
                                      "[0,0]",
                                      "\"block\"",
                                      "\\",
                                      "1.5",
                                      "[[[[[[",
                                      "{\"a\":1,\"a\":1}"};

std::string mutate(std::string text, std::mt19937 &random) {
    const auto below = [&](std::size_t limit) {
        return random() % std::max<std::size_t>(limit, 1);
    };
    for (std::size_t i = 0, count = 1 + below(4); i < count; ++i) {
        const std::size_t at = below(text.size() + 1);
        const std::size_t span = std::min(below(12), text.size() - at);
        switch (below(5)) {
            case 0:
                text.insert(at, words[below(std::size(words))]);
                break;
            case 1:
                text.erase(at, span);
                break;
            case 2:
                text.insert(at, text.substr(at, span));
                break;
            case 3:
                if (at < text.size()) text[at] = static_cast<char>(random());
                break;
            default:
                text.replace(at, span, words[below(std::size(words))]);
                break;
        }
    }
    return text;
}

// Returns the number of accepted inputs.
template <typename Read>
int try_mutations(const std::string &valid, unsigned seed, Read &&read) {
    std::mt19937 random(seed);
    int accepted = 0;
    for (int i = 0; i < rounds; ++i) {
        const std::string text = mutate(valid, random);
        try {
            make_model(read(text), {});
            ++accepted;
        } catch (const InputError &error) {
            // The message is one line and begins with the location.
            const std::string_view said = error.what();
            EXPECT_TRUE(said.starts_with("here: ") || said.starts_with("--")) << said;
            EXPECT_EQ(said.find('\n'), std::string::npos) << said;
            EXPECT_LT(said.size(), 2000u);
        } catch (const std::exception &error) {
            ADD_FAILURE() << "round " << i << ", " << text << ": " << error.what();
            return accepted;
        }
    }
    return accepted;
}

TEST(InputFuzz, SafetensorsHeadersGiveTensorsOrAnError) {
    const std::string valid =
        R"({"__metadata__":{"format":"pt"},"l.0.w":{"dtype":"BF16","shape":[4,8],)"
        R"("data_offsets":[0,64]},"l.0.b":{"dtype":"F32","shape":[4],"data_offsets":[64,80]}})";
    ASSERT_EQ(parse_safetensors_header(valid, 80, "here").size(), 2u);
    const int accepted = try_mutations(valid, 1, [](const std::string &text) {
        return parse_safetensors_header(text, 80, "here");
    });
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, rounds / 2);
}

TEST(InputFuzz, TensorListsGiveTensorsOrAnError) {
    const std::string valid =
        R"({"tensors":[{"name":"layers.0.w","shape":[4,8],"dtype":"bf16","block_rows":2,)"
        R"("batch_dims":0,"align":8,"unit":"u"},{"name":"v","shape":[],"block":"tensor"}]})";
    ASSERT_EQ(parse_tensor_list(valid, "here").size(), 2u);
    const int accepted = try_mutations(
        valid, 2, [](const std::string &text) { return parse_tensor_list(text, "here"); });
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, rounds / 2);
}

}  // namespace
}  // namespace vescomm::planner
