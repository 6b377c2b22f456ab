// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Plans of models with units of experts.
#include <gtest/gtest.h>

#include <algorithm>

#include "fsdp/error.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {
namespace {

// A model of alternating dense units and units of experts.
Spec mixture_of(int units, int expert_ranks, const vescomm_fsdp_spec_options_t &options) {
    vescomm_fsdp_spec_options_t chosen = options;
    chosen.expert_ranks = expert_ranks;
    Spec spec(chosen);
    for (int unit = 0; unit < units; ++unit) {
        spec.add_unit("unit." + std::to_string(unit), unit % 2 == 0 ? 0 : VESCOMM_FSDP_EXPERTS);
        const std::int64_t shape[] = {12, 3 + unit, 5};
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "weight";
        parameter.shape = shape;
        parameter.dimensions = 3;
        spec.add_parameter(static_cast<std::size_t>(unit), parameter);
    }
    spec.complete();
    return spec;
}

TEST(ModelPlan, RanksWithTheSameExpertsShardThem) {
    for (int ranks = 1; ranks <= 24; ++ranks)
        for (const int expert_ranks : {1, 2, 3, 4, 6, 12}) {
            const Spec spec = mixture_of(4, expert_ranks, vescomm_fsdp_spec_options_init());
            if (ranks % expert_ranks != 0) {
                EXPECT_THROW(plan_model(spec, ranks), Failure);
                continue;
            }
            const ModelPlan plan = plan_model(spec, ranks);
            std::vector<std::vector<int>> owner;  // by parameter and element
            for (std::size_t id = 0; id < 4; ++id) owner.emplace_back(12 * (3 + id) * 5, -1);
            for (int rank = 0; rank < ranks; ++rank)
                for (const Bucket &bucket : plan.buckets)
                    for (const auto &piece : bucket.pieces(rank))
                        for (std::int64_t i = piece.first; i < piece.first + piece.elements; ++i) {
                            int &one = owner[piece.parameter][static_cast<std::size_t>(i)];
                            EXPECT_EQ(one, -1);
                            one = rank;
                        }
            for (std::size_t id = 0; id < 4; ++id)
                for (std::size_t i = 0; i < owner[id].size(); ++i) {
                    ASSERT_GE(owner[id][i], 0);
                    if (id % 2 == 0) continue;
                    const auto expert = static_cast<int>(i / ((3 + id) * 5));
                    EXPECT_EQ(owner[id][i] % expert_ranks, expert / (12 / expert_ranks));
                }
        }
}

// The memory of a slot belongs to the ranks that share the units in it.
TEST(ModelPlan, ExpertsHaveSlotsOfTheirOwn) {
    for (const int slots : {1, 2, 3, 7})
        for (const bool keep : {false, true}) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.slots = options.gradient_slots = slots;
            options.keep_gathered = options.keep_gradients = keep ? 1 : 0;
            options.large_unit_bytes = 800;
            const ModelPlan plan = plan_model(mixture_of(7, 2, options), 4);
            const auto expect_kinds = [&](const std::vector<SlotRange> &ranges, std::size_t all,
                                          const auto &kind_of) {
                std::vector<bool> used(all, false);
                for (std::size_t unit = 0; unit < 7; ++unit) {
                    EXPECT_GT(ranges[unit].count(), 0);
                    for (int slot = ranges[unit].begin; slot < ranges[unit].end; ++slot) {
                        ASSERT_LT(static_cast<std::size_t>(slot), all);
                        used[static_cast<std::size_t>(slot)] = true;
                        EXPECT_EQ(kind_of(static_cast<std::size_t>(slot)),
                                  unit % 2 == 0 ? UnitKind::dense : UnitKind::experts);
                    }
                    if (unit % 2 != 0) {
                        EXPECT_FALSE(plan.large[unit]);
                        EXPECT_EQ(ranges[unit].count(), keep || slots >= 3 ? 1 : slots);
                    }
                }
                EXPECT_EQ(std::ranges::count(used, true), static_cast<std::ptrdiff_t>(all));
            };
            expect_kinds(plan.slot_ranges, plan.slots.size(),
                         [&](std::size_t slot) { return plan.kind_of_slot(slot); });
            expect_kinds(plan.gradient_slot_ranges, plan.gradient_slots.size(),
                         [&](std::size_t slot) { return plan.kind_of_gradient_slot(slot); });
        }
}

}  // namespace
}  // namespace vescomm::fsdp
