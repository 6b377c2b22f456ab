// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/models/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/input/rules.h"

namespace vescomm::planner {
namespace {

struct Published {
    std::string_view name;
    std::size_t tensors;
    std::int64_t elements;
};

constexpr Published published[] = {
    {"llama-3-8b", 291, 8'030'261'248},           {"llama-3-70b", 723, 70'553'706'496},
    {"llama-3.1-405b", 1137, 405'853'388'800},    {"mixtral-8x7b", 995, 46'702'792'704},
    {"gpt-oss-20b", 411, 20'914'757'184},         {"gpt-oss-120b", 615, 116'829'156'672},
    {"deepseek-v3", 45'395, 671'026'419'200},     {"deepseek-v3-mtp", 46'181, 682'636'487'424},
    {"qwen3-235b-a22b", 36'945, 235'093'634'560}, {"kimi-k2", 69'975, 1'026'408'232'448},
};

TEST(BuiltInModels, HavePublishedNumbersOfTensorsAndParameters) {
    EXPECT_EQ(std::size(published), built_in_models().size());
    for (const Published &wanted : published) {
        SCOPED_TRACE(wanted.name);
        const std::vector<InputTensor> tensors = make_built_in_model(wanted.name);
        EXPECT_EQ(tensors.size(), wanted.tensors);
        std::int64_t elements = 0;
        std::set<std::string> names;
        for (const InputTensor &tensor : tensors) {
            elements += count_elements(tensor.shape).value();
            EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        }
        EXPECT_EQ(elements, wanted.elements);
    }
}

const InputTensor &find(const std::vector<InputTensor> &tensors, std::string_view name) {
    const auto found = std::ranges::find(tensors, name, &InputTensor::name);
    if (found == tensors.end()) throw std::runtime_error("no tensor " + std::string(name));
    return *found;
}

TEST(BuiltInModels, NamesEqualThoseOfCheckpoints) {
    using Shape = std::vector<std::int64_t>;
    const auto llama = make_built_in_model("llama-3-70b");
    EXPECT_EQ(find(llama, "model.layers.79.self_attn.k_proj.weight").shape, (Shape{1024, 8192}));
    EXPECT_EQ(find(llama, "lm_head.weight").shape, (Shape{128256, 8192}));
    const auto gpt_oss = make_built_in_model("gpt-oss-20b");
    EXPECT_EQ(find(gpt_oss, "model.layers.0.mlp.experts.gate_up_proj").shape,
              (Shape{32, 2880, 5760}));
    EXPECT_EQ(find(gpt_oss, "model.layers.0.self_attn.sinks").shape, (Shape{64}));
    const auto mixtral = make_built_in_model("mixtral-8x7b");
    EXPECT_EQ(find(mixtral, "model.layers.31.block_sparse_moe.experts.7.w2.weight").shape,
              (Shape{4096, 14336}));
}

TEST(BuiltInModels, KeepTheRoutersBiasInF32) {
    for (const InputTensor &tensor : make_built_in_model("deepseek-v3-mtp")) {
        const bool bias = tensor.name.ends_with("e_score_correction_bias");
        EXPECT_EQ(tensor.type, bias ? VESCOMM_F32 : VESCOMM_BF16) << tensor.name;
    }
}

TEST(BuiltInModels, AreListedWhenANameIsWrong) {
    try {
        make_built_in_model("llama-4");
        FAIL();
    } catch (const InputError &error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("\"llama-4\""), std::string::npos) << text;
        EXPECT_NE(text.find("llama-3-8b, llama-3-70b"), std::string::npos) << text;
    }
}

TEST(BuiltInModels, BecomeOneUnitForEachLayerAndType) {
    const Model model = make_model(make_built_in_model("deepseek-v3"), {});
    // embedding, 61 layers, f32 of 58 of them, rest
    ASSERT_EQ(model.units.size(), 121u);
    EXPECT_EQ(model.units.front().name, "embedding");
    EXPECT_EQ(model.units[4].name, "model.layers.3");
    EXPECT_EQ(model.units[5].name, "model.layers.3");
    EXPECT_EQ(model.units[5].type, VESCOMM_F32);
    EXPECT_EQ(model.units[5].tensors.size(), 1u);
    EXPECT_EQ(model.units.back().name, "rest");
    EXPECT_EQ(model.units.back().tensors.size(), 2u);
}

}  // namespace
}  // namespace vescomm::planner
