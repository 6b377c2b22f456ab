// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "planner_reference.h"
#include "random_problem.h"
#include "vescomm/planner_model.hpp"

namespace vescomm::planner::reference {

inline std::int64_t type_bytes(vescomm_type_t type) {
    return type == VESCOMM_U8 ? 1 : type == VESCOMM_BF16 ? 2 : 4;
}

// Makes a few units, some of them alike.
inline Model random_model(std::mt19937 &random, int max_units, int max_tensors, int max_ranks) {
    Model model;
    model.ranks = static_cast<int>(draw(random, 1, max_ranks));
    const std::int64_t count = draw(random, 1, max_units);
    for (std::int64_t i = 0; i < count; ++i) {
        if (i > 0 && draw(random, 0, 1) == 0) {
            model.units.push_back(model.units.back());
        } else {
            constexpr vescomm_type_t types[] = {VESCOMM_U8, VESCOMM_BF16, VESCOMM_F32};
            model.units.push_back(
                {"", types[draw(random, 0, 2)], random_problem(random, max_tensors, 1).tensors});
        }
        model.units.back().name = "unit" + std::to_string(i);
    }
    return model;
}

inline std::string print(const Model &model) {
    std::string text;
    for (const Unit &unit : model.units) {
        text += std::to_string(type_bytes(unit.type)) + " bytes, " +
                print({unit.tensors, model.ranks, model.weights}) + "\n";
    }
    return text;
}

inline std::vector<std::int64_t> loads_of(const Model &model, const ModelAnswer &answer) {
    std::vector<std::int64_t> loads(static_cast<std::size_t>(model.ranks), 0);
    for (std::size_t i = 0; i < model.units.size(); ++i) {
        const std::vector<std::int64_t> &cuts = answer.units[i]->cuts;
        for (std::size_t k = 0; k < loads.size(); ++k) {
            loads[k] += (cuts[k + 1] - cuts[k]) * type_bytes(model.units[i].type);
        }
    }
    return loads;
}

// Checks all figures and properties of an answer against the definition.
inline void expect_valid(const Model &model, Options options, const ModelAnswer &answer) {
    ASSERT_TRUE(answer.feasible) << answer.explanation;
    ASSERT_EQ(answer.units.size(), model.units.size());
    EXPECT_NE(answer.mode, Mode::automatic);
    options.mode = answer.mode;
    std::int64_t bytes = 0;
    std::int64_t padding = 0;
    for (std::size_t i = 0; i < model.units.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "unit " << i);
        Problem problem{model.units[i].tensors, model.ranks, model.weights};
        if (answer.mode == Mode::owner) {
            for (Tensor &tensor : problem.tensors) tensor.block_rows = -1;
        }
        expect_valid(problem, options, *answer.units[i]);
        bytes += answer.units[i]->elements * type_bytes(model.units[i].type);
        padding += answer.units[i]->padding * type_bytes(model.units[i].type);
        EXPECT_NE(make_layout(model, answer, i), nullptr);
    }
    EXPECT_EQ(answer.bytes, bytes);
    EXPECT_EQ(answer.padding_bytes, padding);
    const std::vector<std::int64_t> loads = loads_of(model, answer);
    EXPECT_EQ(answer.largest_rank_bytes, *std::ranges::max_element(loads));
    EXPECT_LE(answer.lower_bound_bytes, answer.largest_rank_bytes);
    EXPECT_DOUBLE_EQ(answer.mean_rank_bytes, static_cast<double>(bytes - padding) / model.ranks);
}

}  // namespace vescomm::planner::reference
