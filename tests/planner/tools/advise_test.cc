// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <stdexcept>

#include "planner/input/rules.h"
#include "planner/models/models.h"
#include "vescomm/planner_advice.hpp"

namespace vescomm::planner {
namespace {

Model model_of(std::string_view name, std::int64_t block_rows, int ranks) {
    Rules rules;
    rules.block_rows = block_rows;
    Model model = make_model(make_built_in_model(name), rules);
    model.ranks = ranks;
    return model;
}

TEST(Advise, ListsGroupsThatDivideANodeOrConsistOfNodes) {
    const Advice advice = advise(model_of("llama-3-8b", 1, 48), {.ranks_per_node = 8});
    std::vector<int> groups;
    for (const Choice &choice : advice.choices) {
        groups.push_back(choice.group);
        EXPECT_EQ(choice.group * choice.replicas, 48);
        EXPECT_TRUE(choice.fits);
    }
    EXPECT_EQ(groups, (std::vector<int>{1, 2, 4, 8, 16, 24, 48}));
}

TEST(Advise, CountsTheStatedAssumptions) {
    Model model;
    model.units = {{"a", VESCOMM_BF16, {{"w", {1024, 64}}}}, {"b", VESCOMM_BF16, {{"v", {4096}}}}};
    model.ranks = 4;
    const Advice advice = advise(model, {.ranks_per_node = 4});
    const double elements = 1024 * 64 + 4096;
    ASSERT_EQ(advice.choices.size(), 3u);
    const Choice &whole = advice.choices[2];
    EXPECT_DOUBLE_EQ(whole.shard_bytes, elements / 4 * 16);
    EXPECT_DOUBLE_EQ(whole.slot_bytes, 4 * 1024 * 64 * 2);  // two units and two gradients
    EXPECT_DOUBLE_EQ(whole.memory_bytes, whole.shard_bytes + whole.slot_bytes);
    EXPECT_DOUBLE_EQ(whole.wire_bytes_inside, 3 * elements * 2 * 3 / 4);
    EXPECT_DOUBLE_EQ(whole.wire_bytes_between, 0);
    const Choice &alone = advice.choices[0];
    EXPECT_DOUBLE_EQ(alone.wire_bytes_inside, 0);
    EXPECT_DOUBLE_EQ(alone.wire_bytes_between, 2 * elements * 2 * 3 / 4);
}

TEST(Advise, RecommendsTheFastestThatFits) {
    const double gib = 1 << 30;
    const Model model = model_of("llama-3-8b", 1, 64);
    const Advice roomy = advise(model, {.memory_bytes = 80 * gib});
    ASSERT_TRUE(roomy.recommended.has_value()) << roomy.reason;
    EXPECT_EQ(roomy.choices[*roomy.recommended].group, 8);  // a copy in each node
    const Advice tight = advise(model, {.memory_bytes = 8 * gib});
    ASSERT_TRUE(tight.recommended.has_value()) << tight.reason;
    EXPECT_GT(tight.choices[*tight.recommended].group, 8);
    EXPECT_LE(tight.choices[*tight.recommended].memory_bytes, 8 * gib);
    const Advice hopeless = advise(model, {.memory_bytes = gib});
    EXPECT_FALSE(hopeless.recommended.has_value());
    EXPECT_NE(hopeless.reason.find("nothing fits: groups of 64 ranks need the least"),
              std::string::npos)
        << hopeless.reason;
}

TEST(Advise, NamesTheTensorWhoseBlocksAreTooLarge) {
    const Advice advice = advise(model_of("llama-3-70b", 128, 512), {}, {.mode = Mode::uniform});
    const std::string &note = advice.choices.back().note;
    EXPECT_NE(note.find("a block of tensor \"model.layers.0.mlp.down_proj.weight\" has 3,670,016 "
                        "elements, 2.20 times a fair shard"),
              std::string::npos)
        << note;
    EXPECT_NE(note.find("blocks of at most 58 rows, or groups of at most 233 ranks"),
              std::string::npos)
        << note;
    EXPECT_EQ(advice.choices.front().note, "");
}

TEST(Advise, RefusesInvalidOptions) {
    const Model model = model_of("llama-3-8b", 1, 8);
    EXPECT_THROW(advise(model, {.ranks_per_node = 0}), std::invalid_argument);
    EXPECT_THROW(advise(model, {.memory_bytes = -1}), std::invalid_argument);
    EXPECT_THROW(advise(model, {.parameter_slots = 0}), std::invalid_argument);
    EXPECT_THROW(advise(model, {.network_bytes_per_second = 0}), std::invalid_argument);
    Model weighted = model;
    weighted.weights.assign(8, 1);
    EXPECT_THROW(advise(weighted), std::invalid_argument);
    Model nobody = model;
    nobody.ranks = 0;
    EXPECT_THROW(advise(nobody), std::invalid_argument);
}

}  // namespace
}  // namespace vescomm::planner
