// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner on layers of public models.
#include <gtest/gtest.h>

#include "planner_reference.h"

namespace vescomm::planner {
namespace {

// One LLaMA-3-70B layer.
Problem llama_layer(std::int64_t rows, int ranks) {
    const std::int64_t d = 8192;
    const std::int64_t ff = 28672;
    return {{{"q", {d, d}, rows},
             {"k", {1024, d}, rows},
             {"v", {1024, d}, rows},
             {"o", {d, d}, rows},
             {"gate", {ff, d}, rows},
             {"up", {ff, d}, rows},
             {"down", {d, ff}, rows},
             {"attention_norm", {d}},
             {"ffn_norm", {d}}},
            ranks};
}

// Mixture-of-experts layers of DeepSeek-V3.
Problem deepseek_layers(std::int64_t rows, int ranks, int layers) {
    const std::int64_t d = 7168;
    Problem problem;
    problem.ranks = ranks;
    for (int layer = 0; layer < layers; ++layer) {
        const std::string prefix = "layers." + std::to_string(layer) + ".";
        const auto add = [&](const std::string &name, std::vector<std::int64_t> shape) {
            const std::int64_t block = shape.size() == 1 ? 1 : rows;
            problem.tensors.push_back({prefix + name, std::move(shape), block});
        };
        add("q_a", {1536, d});
        add("q_a_norm", {1536});
        add("q_b", {128 * 192, 1536});
        add("kv_a", {576, d});
        add("kv_a_norm", {512});
        add("kv_b", {128 * 256, 512});
        add("o", {d, 128 * 128});
        add("input_norm", {d});
        add("post_norm", {d});
        add("gate", {256, d});
        add("bias", {256});
        for (int expert = 0; expert < 257; ++expert) {
            const std::string name = "experts." + std::to_string(expert) + ".";
            add(name + "gate", {2048, d});
            add(name + "up", {2048, d});
            add(name + "down", {d, 2048});
        }
    }
    return problem;
}

// One GPT-OSS-120B layer. Hugging Face stores experts as [inputs, outputs], torchtitan as [outputs,
// inputs]. Blocks restart at each expert, or continue through the experts as in one matrix, which
// the published figures assume.
enum class Experts { hugging_face, hugging_face_restarting, torchtitan };

Problem gpt_oss_layer(std::int64_t rows, int ranks, Experts format) {
    const std::int64_t d = 2880;
    const auto experts = [&](const char *name, std::int64_t outputs) {
        const std::int64_t first = format == Experts::torchtitan ? outputs : d;
        const std::int64_t second = format == Experts::torchtitan ? d : outputs;
        return format == Experts::hugging_face_restarting
                   ? Tensor{name, {128, first, second}, rows, 1}
                   : Tensor{name, {128 * first, second}, rows};
    };
    return {{{"q", {4096, d}, rows},
             {"q_bias", {4096}},
             {"k", {512, d}, rows},
             {"k_bias", {512}},
             {"v", {512, d}, rows},
             {"v_bias", {512}},
             {"o", {d, 4096}, rows},
             {"o_bias", {d}},
             {"sinks", {64}},
             {"router", {128, d}, rows},
             {"router_bias", {128}},
             experts("gate_up", 2 * d),
             {"gate_up_bias", {128, 2 * d}},
             experts("down", d),
             {"down_bias", {128, d}},
             {"input_norm", {d}},
             {"post_norm", {d}}},
            ranks};
}

struct Figure {
    Problem problem;
    Mode mode;
    double waste;  // percent by which the largest shard exceeds the mean
    bool optimal;
};

void expect_figure(const Figure &figure, const Options &options, const Answer &answer) {
    reference::expect_valid(figure.problem, options, answer);
    const double waste = 100 * (static_cast<double>(answer.largest_shard) / answer.mean_shard - 1);
    EXPECT_NEAR(waste, figure.waste, 0.05);
    EXPECT_EQ(answer.optimal, figure.optimal);
}

// The published figures. The uniform ones were proved optimal in the publication as well.
TEST(PlannerFigures, MatchPublishedFiguresOfRealLayers) {
    const Figure figures[] = {
        {llama_layer(32, 128), Mode::uniform, 9.80, true},
        {llama_layer(32, 384), Mode::uniform, 64.70, true},
        {llama_layer(32, 512), Mode::uniform, 9.80, true},
        {llama_layer(1, 256), Mode::uniform, 1.22, true},
        {llama_layer(1, 1024), Mode::uniform, 2.94, true},
        {llama_layer(128, 256), Mode::uniform, 119.6, true},
        {llama_layer(32, 128), Mode::ragged, 1.96, false},
        {llama_layer(32, 512), Mode::ragged, 9.80, false},
        {llama_layer(1, 256), Mode::ragged, 0.24, false},
        {llama_layer(128, 256), Mode::ragged, 25.5, false},
        {deepseek_layers(16, 1024, 1), Mode::uniform, 4.97, true},
        {deepseek_layers(16, 1536, 1), Mode::uniform, 4.97, true},
        {deepseek_layers(32, 512, 1), Mode::uniform, 0.31, true},
        {deepseek_layers(128, 256, 1), Mode::uniform, 2.64, true},
        {deepseek_layers(128, 1024, 1), Mode::uniform, 11.97, true},
        {deepseek_layers(32, 2048, 1), Mode::uniform, 39.96, true},
        {deepseek_layers(128, 1024, 1), Mode::ragged, 2.64, false},
        {gpt_oss_layer(128, 512, Experts::torchtitan), Mode::uniform, 5.74, true},
        {gpt_oss_layer(128, 1024, Experts::torchtitan), Mode::uniform, 99.7, true},
        {gpt_oss_layer(16, 1024, Experts::hugging_face), Mode::uniform, 88.0, true},
        {gpt_oss_layer(128, 512, Experts::torchtitan), Mode::ragged, 5.74, false},
        {gpt_oss_layer(128, 1024, Experts::torchtitan), Mode::ragged, 5.74, true},
    };
    for (const Figure &figure : figures) {
        Options options;
        options.mode = figure.mode;
        const Answer answer = plan(figure.problem, options);
        SCOPED_TRACE(answer.explanation);
        expect_figure(figure, options, answer);
        if (figure.mode == Mode::ragged) {
            EXPECT_EQ(answer.padding, 0);
        }
    }
}

// The search finds better orders and proofs, in about 0.2 s each. Ten times the steps prove the
// other layers of DeepSeek as well.
TEST(PlannerFigures, SearchProvesOptimality) {
    const Figure figures[] = {
        {llama_layer(32, 128), Mode::ragged, 1.96, true},
        {llama_layer(32, 512), Mode::ragged, 9.80, true},
        {llama_layer(1, 256), Mode::ragged, 0.24, true},
        {llama_layer(128, 256), Mode::ragged, 25.5, true},
        {gpt_oss_layer(128, 512, Experts::torchtitan), Mode::ragged, 5.74, true},
        {gpt_oss_layer(128, 1024, Experts::torchtitan), Mode::ragged, 5.74, true},
        {gpt_oss_layer(128, 384, Experts::hugging_face_restarting), Mode::ragged, 3.53, true},
        {gpt_oss_layer(128, 24, Experts::hugging_face_restarting), Mode::uniform, 10.97, true},
        {deepseek_layers(128, 1024, 1), Mode::ragged, 2.64, true},
        {deepseek_layers(128, 1536, 1), Mode::ragged, 4.97, true},
        {deepseek_layers(32, 2048, 1), Mode::ragged, 2.06, true},
        {deepseek_layers(16, 1536, 1), Mode::ragged, 0.60, true},
    };
    for (const Figure &figure : figures) {
        const Options options{.mode = figure.mode, .search_steps = 20000000};
        const Answer answer = plan(figure.problem, options);
        SCOPED_TRACE(answer.explanation);
        expect_figure(figure, options, answer);
        EXPECT_LE(answer.steps, options.search_steps + 2000);  // a question may exceed the limit
    }
}

// The default order would cost 26 %.
TEST(PlannerFigures, BetterOrderSavesAFifthOfDeepSeek) {
    const Answer answer = plan(deepseek_layers(16, 1536, 1), {.mode = Mode::uniform});
    EXPECT_EQ(answer.order, "block ascending");
    EXPECT_EQ(answer.orders, (std::vector<std::string>{"default", "block ascending"}));
}

TEST(PlannerFigures, ExplainsWhenOneBlockExceedsAShard) {
    const Answer answer = plan(llama_layer(128, 256), {.mode = Mode::uniform});
    EXPECT_NE(answer.explanation.find("a block of tensor \"down\" holds 3,670,016 elements"),
              std::string::npos)
        << answer.explanation;
    EXPECT_NE(answer.explanation.find("no more than 233 ranks"), std::string::npos);
}

// Answers must be equal on all platforms and in all versions, because ranks with different builds
// must agree.
TEST(PlannerFigures, AnswersNeverChange) {
    const auto hash = [](const Problem &problem, Mode mode) {
        const LayoutPointer layout = make_layout(problem, plan(problem, {.mode = mode}));
        vescomm_layout_info_t info = vescomm_layout_info_init();
        vescomm_layout_get_info(layout.get(), &info);
        return info.hash;
    };
    EXPECT_EQ(hash(llama_layer(32, 128), Mode::ragged), 6170742748101015448u);
    EXPECT_EQ(hash(llama_layer(32, 384), Mode::uniform), 14392616391874890025u);
    EXPECT_EQ(hash(deepseek_layers(16, 1536, 1), Mode::uniform), 6399835815917865249u);
    EXPECT_EQ(hash(gpt_oss_layer(128, 96, Experts::hugging_face_restarting), Mode::ragged),
              1905568353211286337u);
}

TEST(PlannerScale, PlansDeepSeekForAHundredThousandRanks) {
    const Problem problem = deepseek_layers(128, 100000, 58);
    EXPECT_GT(problem.tensors.size(), 45000u);
    for (const Mode mode : {Mode::ragged, Mode::uniform}) {
        const Options options{.mode = mode};
        reference::expect_valid(problem, options, plan(problem, options));
    }
}

TEST(PlannerScale, SupportsMoreThanTwoToTheFortyElements) {
    const std::int64_t rows = std::int64_t{1} << 40;
    const Problem problem{{{"a", {rows, 1000}, 32}, {"b", {5}}, {"c", {rows, 1001}, 7}}, 99991};
    const Options ragged;
    const Answer answer = plan(problem, ragged);
    reference::expect_valid(problem, ragged, answer);
    EXPECT_LT(static_cast<double>(answer.largest_shard), answer.mean_shard * 1.00001);
    const Options uniform{.mode = Mode::uniform};
    reference::expect_valid(problem, uniform, plan(problem, uniform));
}

TEST(PlannerScale, ReportsWhenEqualShardsExceed64Bits) {
    const Problem problem{{{"a", {std::int64_t{1} << 61}, -1}}, 8};
    const Answer answer = plan(problem, {.mode = Mode::uniform});
    EXPECT_FALSE(answer.feasible);
    EXPECT_NE(answer.explanation.find("there is no uniform layout"), std::string::npos);
    EXPECT_TRUE(plan(problem).feasible);
}

}  // namespace
}  // namespace vescomm::planner
