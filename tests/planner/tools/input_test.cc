// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The input formats of vescomm-plan and their error messages.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/input/closest.h"
#include "planner/input/rules.h"
#include "planner/input/safetensors.h"
#include "planner/input/sizes.h"
#include "planner/input/tensor_file.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

template <typename Body>
std::string sentence_of(Body &&body) {
    try {
        body();
    } catch (const InputError &error) {
        return error.what();
    }
    return "accepted";
}

#define EXPECT_SAYS(body, part)                                                 \
    do {                                                                        \
        const std::string said = sentence_of([&] { (void)(body); });            \
        EXPECT_NE(said.find(part), std::string::npos) << #body << ": " << said; \
    } while (false)

std::vector<InputTensor> header(const std::string &text, std::int64_t data_bytes) {
    return parse_safetensors_header(text, data_bytes, "file");
}

std::string entry(const std::string &name, const std::string &body) {
    return fmt::format(R"("{}": {{{}}})", name, body);
}

std::string bf16(const std::string &name, int begin, int end, const std::string &shape) {
    return entry(name, fmt::format(R"("dtype": "BF16", "shape": [{}], "data_offsets": [{}, {}])",
                                   shape, begin, end));
}

TEST(Safetensors, ReadsNamesTypesAndShapes) {
    const std::string text = "{\"__metadata__\": {\"format\": \"pt\"}," + bf16("b", 8, 24, "2,4") +
                             "," + bf16("a", 0, 8, "4") + "," + bf16("empty", 8, 8, "0,7") + "," +
                             bf16("scalar", 24, 26, "") + "}   ";
    const std::vector<InputTensor> tensors = header(text, 26);
    ASSERT_EQ(tensors.size(), 4u);
    EXPECT_EQ(tensors[0].name, "a");
    EXPECT_EQ(tensors[1].name, "empty");
    EXPECT_EQ(tensors[2].shape, (std::vector<std::int64_t>{2, 4}));
    EXPECT_TRUE(tensors[3].shape.empty());
}

TEST(Safetensors, RefusesDamagedFiles) {
    const auto one = [](const std::string &body) { return "{" + entry("t", body) + "}"; };
    EXPECT_SAYS(header("", 0), "this is not JSON: the text ends too early, after 0 bytes");
    EXPECT_SAYS(header("[]", 0), "the header is [], not an object");
    EXPECT_SAYS(header("{\"a\": 3}", 0), "tensor \"a\": it is 3, not an object");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "4") + "," + bf16("t", 8, 16, "4") + "}", 16),
                "the key \"t\" is there twice");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "4"), 8), "this is not JSON: the text ends too early");
    EXPECT_SAYS(header("{]" + bf16("t", 0, 8, "4"), 8), "this is not JSON, from byte 2 of");
    EXPECT_SAYS(header("{" + bf16("t", 0, 9, "4") + "}", 9), "do not hold the 8 bytes");
    EXPECT_SAYS(header("{" + bf16("t", 8, 0, "4") + "}", 8), "do not hold the 8 bytes");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "4") + "}", 7), "the file is cut short");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "4") + "}", 9), "the last 1 of 9 bytes");
    EXPECT_SAYS(header("{" + bf16("a", 0, 8, "4") + "," + bf16("b", 4, 12, "4") + "}", 12),
                "tensors \"a\" and \"b\" overlap");
    EXPECT_SAYS(header("{" + bf16("a", 0, 8, "4") + "," + bf16("b", 10, 18, "4") + "}", 18),
                "bytes 8 to 10, before tensor \"b\", belong to no tensor");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "-4") + "}", 8), "shape has -4");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "4.0") + "}", 8), "shape has 4.0");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "99999999999999999999") + "}", 8), "shape has 1e+20");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "4294967296,4294967296") + "}", 8), "2^62 bytes");
    EXPECT_SAYS(header("{" + bf16("t", 0, 8, "[4]") + "}", 8), "nested more than 3 deep");
    EXPECT_SAYS(header(one(R"("shape": [], "data_offsets": [0, 2])"), 2), "dtype is missing");
    EXPECT_SAYS(header(one(R"("dtype": 1, "shape": [], "data_offsets": [0, 2])"), 2),
                "dtype is 1, not a text");
    EXPECT_SAYS(header(one(R"("dtype": "X64", "shape": [], "data_offsets": [0, 2])"), 2),
                "dtype \"X64\" is none that vescomm has (f32, bf16");
    EXPECT_SAYS(header(one(R"("dtype": "BF16", "shape": [], "data_offsets": [0, 1, 2])"), 2),
                "data_offsets has 3 numbers");
    EXPECT_SAYS(header(one(R"("dtype": "BF16", "shape": 3, "data_offsets": [0, 2])"), 2),
                "shape is 3, not a list");
    EXPECT_SAYS(header(one(R"("dtype": "BF16", "shape": [], "data_offsets": [0, 2], "x": 1)"), 2),
                "it has the key \"x\"");
    EXPECT_SAYS(header("{" + bf16(std::string(1025, 'n'), 0, 8, "4") + "}", 8), "has 1025 bytes");
    EXPECT_SAYS(header(std::string(100000, '['), 0), "nested more than 3 deep");
}

TEST(Safetensors, CutsLongTextsBetweenCharacters) {
    std::string shown = "x";
    for (int i = 0; i < 59; ++i) shown += "é";
    const std::string type = shown + "éé";  // the 120th byte is the second one of an é
    EXPECT_SAYS(header("{" +
                           entry("w", fmt::format(R"("dtype": "{}", "shape": [], )"
                                                  R"("data_offsets": [0, 2])",
                                                  type)) +
                           "}",
                       2),
                "\"" + shown + "...\"");
}

TEST(Safetensors, SortsNamesInNaturalOrder) {
    std::vector<std::string> names = {"l.10.a", "l.9.a", "l.9", "l.09.a", "l.9.b", "k", "l.9.a.0"};
    std::ranges::sort(names, natural_less);
    EXPECT_EQ(names, (std::vector<std::string>{"k", "l.9", "l.09.a", "l.9.a", "l.9.a.0", "l.9.b",
                                               "l.10.a"}));
}

std::vector<InputTensor> list(const std::string &tensors) {
    return parse_tensor_list("{\"tensors\": [" + tensors + "]}", "list");
}

TEST(TensorFile, ReadsAllKeys) {
    const auto tensors = list(R"(
        {"name": "w", "shape": [10, 4, 8], "dtype": "torch.float32", "block_rows": 2,
         "batch_dims": 1, "align": 16, "unit": "u"},
        {"name": "v", "shape": [], "block": "tensor"})");
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_EQ(tensors[0].type, VESCOMM_F32);
    EXPECT_EQ(tensors[0].block_rows, 2);
    EXPECT_EQ(tensors[0].batch_dimensions, 1);
    EXPECT_EQ(tensors[0].alignment, 16);
    EXPECT_EQ(tensors[0].unit, "u");
    EXPECT_EQ(tensors[1].type, VESCOMM_BF16);
    EXPECT_EQ(tensors[1].block_rows, -1);
}

TEST(TensorFile, DerivesNothingFromNames) {
    const auto tensors = list(R"({"name": "mlp.experts", "shape": [4, 100, 8]},
                                 {"name": "stack", "shape": [4, 100, 8], "batch_dims": 1})");
    EXPECT_EQ(tensors[0].batch_dimensions, 0);
    EXPECT_EQ(tensors[1].batch_dimensions, 1);
}

TEST(TensorFile, ReportsErrorAndLocation) {
    const auto with = [](const std::string &more) {
        return list(R"({"name": "w", "shape": [4, 4])" + more + "}");
    };
    EXPECT_SAYS(parse_tensor_list("[]", "list"), "there is no list {\"tensors\": [...]}");
    EXPECT_SAYS(parse_tensor_list(R"({"tensors": [], "x": 1})", "list"), "there is no key \"x\"");
    EXPECT_SAYS(list("3"), "list: tensors[0]: it is 3, not an object");
    EXPECT_SAYS(list("{\"shape\": [1]}"), "\"name\" is missing");
    EXPECT_SAYS(list("{\"name\": \"w\"}"), "tensors[0] (\"w\"): \"shape\" is missing");
    EXPECT_SAYS(list(R"({"name": "w", "shape": [-1]})"), "\"shape\" has -1");
    EXPECT_SAYS(list(R"({"name": "w", "shape": [1e3]})"), "\"shape\" has 1000.0");
    EXPECT_SAYS(list(R"({"name": "w", "shape": [4611686018427387904, 2]})"), "2^62 elements");
    EXPECT_SAYS(list(R"({"name": "w", "shape": "4x4"})"), "give a list such as");
    EXPECT_SAYS(with(R"(, "dtype": "int4")"), "\"dtype\" is \"int4\"; give one of f32, bf16");
    EXPECT_SAYS(with(R"(, "block": "row")"), "it can only be \"tensor\"");
    EXPECT_SAYS(with(R"(, "block": "tensor", "block_rows": 2)"), "both");
    EXPECT_SAYS(with(R"(, "block_rows": 0)"), "\"block_rows\" has 0; give a whole number from 1");
    EXPECT_SAYS(with(R"(, "batch_dims": 3)"), "from 0 to 2");
    EXPECT_SAYS(with(R"(, "rows": 3)"), "there is no key \"rows\"; there are name, shape");
    EXPECT_SAYS(list(R"({"name": "w", "shape": []}, {"name": "w", "shape": []})"),
                "tensors[1]: the name \"w\" is there already");
    EXPECT_SAYS(read_tensor_file("/nowhere.json"), "file \"/nowhere.json\" cannot be read");
}

TEST(Rules, MakeUnitsOfLayersEmbeddingAndRest) {
    EXPECT_EQ(default_unit("model.layers.12.mlp.weight"), "model.layers.12");
    EXPECT_EQ(default_unit("transformer.h.3.attn.c_attn.weight"), "transformer.h.3");
    EXPECT_EQ(default_unit("blocks.0.norm"), "blocks.0");
    EXPECT_EQ(default_unit("model.layers.61.embed_tokens.weight"), "model.layers.61");
    EXPECT_EQ(default_unit("transformer.wte.weight"), "embedding");
    EXPECT_EQ(default_unit("model.embed_tokens.weight"), "embedding");
    EXPECT_EQ(default_unit("mlayers.0.w"), "rest");
    EXPECT_EQ(default_unit("layers.x.w"), "rest");
    EXPECT_EQ(default_unit("layers.1"), "rest");
    EXPECT_EQ(default_unit(""), "rest");
}

InputTensor tensor(const std::string &name, std::vector<std::int64_t> shape) {
    InputTensor result;
    result.name = name;
    result.shape = std::move(shape);
    return result;
}

TEST(Rules, CutMatricesInBlocksAndVectorsAnywhere) {
    Rules rules;
    rules.block_rows = 32;
    rules.blocks = {parse_block_rule("special=tensor"), parse_block_rule("special.3=7")};
    const Model model = make_model(
        {tensor("matrix", {100, 8}), tensor("vector", {100}), tensor("experts", {4, 100, 8}),
         tensor("experts_bias", {4, 100}), tensor("special.1", {100}), tensor("special.3", {9, 9})},
        rules);
    ASSERT_EQ(model.units.size(), 1u);
    std::vector<std::pair<std::int64_t, std::int32_t>> made;
    for (const Tensor &each : model.units[0].tensors)
        made.emplace_back(each.block_rows, each.batch_dimensions);
    EXPECT_EQ(made, (decltype(made){{32, 0}, {1, 0}, {32, 1}, {1, 1}, {-1, 0}, {7, 0}}));
}

// A row of a convolution makes one output; blocks of 4 elements would not keep it together.
TEST(Rules, RestartBlocksOnlyForExperts) {
    Rules rules;
    rules.block_rows = 32;
    InputTensor said = tensor("layers.stack", {5, 100, 8});
    said.batch_dimensions = 1;
    InputTensor denied = tensor("experts", {5, 100, 8});
    denied.batch_dimensions = 0;
    const std::vector<std::pair<InputTensor, std::int32_t>> expected = {
        {tensor("mixer.conv1d.weight", {1536, 1, 4}), 0},
        {tensor("conv1.weight", {64, 3, 7, 7}), 0},
        {tensor("model.layers.0.mlp.experts.gate_up_proj", {128, 2880, 5760}), 1},
        {tensor("model.layers.0.mlp.experts.gate_up_proj_blocks", {32, 5760, 90, 16}), 1},
        {tensor("model.layers.0.block_sparse_moe.input_linear.weight", {8, 512, 256}), 1},
        {tensor("model.layers.0.mlp.experts.7.conv.weight", {64, 1, 4}), 0},
        {tensor("position_embedding", {1, 197, 768}), 1},
        {said, 1},
        {denied, 0},
    };
    for (const auto &[input, batch] : expected) {
        const Model model = make_model({input}, rules);
        const Tensor &made = model.units.at(0).tensors.at(0);
        EXPECT_EQ(made.batch_dimensions, batch) << input.name;
        EXPECT_EQ(made.block_rows, 32) << input.name;
    }
}

TEST(Rules, NameUnitsByCapturedGroup) {
    Rules rules;
    rules.units = {parse_unit_rule("^(expert\\d+)\\."), parse_unit_rule("router")};
    const Model model = make_model({tensor("expert3.w", {2}), tensor("a.router.b", {2}),
                                    tensor("expert3.v", {2}), tensor("norm", {2})},
                                   rules);
    ASSERT_EQ(model.units.size(), 3u);
    EXPECT_EQ(model.units[0].name, "expert3");
    EXPECT_EQ(model.units[0].tensors.size(), 2u);
    EXPECT_EQ(model.units[1].name, "router");
    EXPECT_EQ(model.units[2].name, "rest");
}

TEST(Rules, RefuseMistakes) {
    EXPECT_SAYS(parse_block_rule("experts"), "there is no =");
    EXPECT_SAYS(parse_block_rule("a=0"), "no number of rows");
    EXPECT_SAYS(parse_block_rule("a=3x"), "no number of rows");
    EXPECT_SAYS(parse_block_rule("(=3"), "is no regular expression");
    // Found by fuzzing: the library overflowed a long while it read the number.
    EXPECT_SAYS(parse_block_rule("\\9919999999919999983=t"), "number of more than 18 digits");
    EXPECT_SAYS(parse_unit_rule("a{9919999999919999983}"), "number of more than 18 digits");
    EXPECT_SAYS(parse_block_rule("=3"), "the expression is empty");
    EXPECT_SAYS(parse_unit_rule("["), "is no regular expression");
    Rules rules;
    rules.blocks = {parse_block_rule("expert=3")};
    EXPECT_SAYS(make_model({tensor("w", {2})}, rules),
                "--block \"expert=3\": no tensor's name matches");
    EXPECT_SAYS(make_model({}, {.block_rows = 0}), "--block-rows 0");
}

TEST(Sizes, AreReadAsPeopleWriteThem) {
    EXPECT_EQ(parse_bytes("128", "-"), 128);
    EXPECT_EQ(parse_bytes("64MiB", "-"), 64 << 20);
    EXPECT_EQ(parse_bytes("1.5 KiB", "-"), 1536);
    EXPECT_EQ(parse_bytes("80GB", "-"), 80'000'000'000);
    for (const char *text : {"", "MiB", "-1", "1e3", "3 parsecs", "1..5", "99999999999TiB", "nan"})
        EXPECT_SAYS(parse_bytes(text, "--memory"), "this is no number of bytes");
    EXPECT_EQ(parse_weights("2x3,1", "-"), (std::vector<std::int64_t>{2, 2, 2, 1}));
    for (const char *text : {"", "1,", "0", "1x0", "x3", "1x99999999999", "a"})
        EXPECT_SAYS(parse_weights(text, "--weights"), "is no weight");
    EXPECT_EQ(parse_bandwidth("300GB", "-"), 300e9);
    EXPECT_EQ(parse_bandwidth("25 GB/s", "-"), 25e9);
    EXPECT_EQ(parse_bandwidth("400Gbit/s", "-"), 50e9);
    for (const char *text : {"", "0", "50Gb", "1/s/s", "fast"})
        EXPECT_SAYS(parse_bandwidth(text, "-"), "this is no number of bytes in a second");
    EXPECT_EQ(parse_count("20,000,000", "-", 0, 1 << 30), 20'000'000);
    for (const char *text : {"", "-1", "11", "2,0", "1e3", "1.0", ",1", "99999999999999999999"})
        EXPECT_SAYS(parse_count(text, "--ranks", 0, 10), "give a whole number from 0 to 10");
    EXPECT_EQ(parse_numbers("4,0.5", "-", 2, 0, 8), (std::vector<double>{4, 0.5}));
    for (const char *text : {"", "4", "4,", "4,5,6", "4,-1", "4,9", "4,nan", "4 5"})
        EXPECT_SAYS(parse_numbers(text, "-", 2, 0, 8), "give 2 numbers from 0 to 8");
}

TEST(Closest, SuggestsTheIntendedWord) {
    const std::vector<std::string> known = {"--model", "--memory", "--ranks", "--ranks-per-node"};
    EXPECT_EQ(did_you_mean("--rank", known), " (did you mean --ranks?)");
    EXPECT_EQ(did_you_mean("--mem", known), " (did you mean --memory?)");
    EXPECT_EQ(did_you_mean("--modle", known), " (did you mean --model?)");
    EXPECT_EQ(did_you_mean("--verbose", known), "");
    EXPECT_EQ(did_you_mean(std::string(1 << 20, 'x'), known), "");
}

TEST(Words, AreReadAsPeopleWriteThem) {
    EXPECT_EQ(with_commas(std::int64_t{0}), "0");
    EXPECT_EQ(with_commas(std::int64_t{999}), "999");
    EXPECT_EQ(with_commas(std::int64_t{-1000}), "-1,000");
    EXPECT_EQ(with_commas(std::int64_t{1} << 62), "4,611,686,018,427,387,904");
    EXPECT_EQ(with_commas(10377.784, 2), "10,377.78");
    EXPECT_EQ(count_of(1, "rank"), "1 rank");
    EXPECT_EQ(count_of(12500, "rank"), "12,500 ranks");
    EXPECT_EQ(percent(0.0574), "5.74 %");
    EXPECT_EQ(show_bytes(1536), "1.500 KiB");
    EXPECT_EQ(show_count(116829156672.0), "116.8 G");
    EXPECT_EQ(show_count(512), "512");
    EXPECT_EQ(show_bandwidth(50e9), "50 GB/s");
}

TEST(PackedTypes, AreCountedInBytes) {
    EXPECT_EQ(packed_bits("F4"), 4);
    EXPECT_EQ(packed_bits("F6_E3M2"), 6);
    EXPECT_FALSE(packed_bits("f8").has_value());
    std::vector<std::int64_t> shape = {3, 12};
    EXPECT_TRUE(count_bytes(shape, 6));
    EXPECT_EQ(shape, (std::vector<std::int64_t>{3, 9}));
    EXPECT_FALSE(count_bytes(shape, 4));
    EXPECT_EQ(shape, (std::vector<std::int64_t>{3, 9}));
    std::vector<std::int64_t> scalar;
    EXPECT_FALSE(count_bytes(scalar, 4));
}

}  // namespace
}  // namespace vescomm::planner
