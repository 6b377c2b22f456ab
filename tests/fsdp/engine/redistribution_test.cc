// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The decisions of a recovery: holders of copies, survivors, and segments of shards.
#include "fsdp/engine/redistribution.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "fsdp/error.h"
#include "fsdp/spec/partners.h"

namespace vescomm::fsdp {
namespace {

// `expert_ranks`: of the second unit. 0: it is dense.
Spec spec_of(const std::string &preset, std::int64_t block_rows = 1, int expert_ranks = 0) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.partner_copy = 1;
    options.expert_ranks = expert_ranks;
    Spec spec(options);
    spec.use_preset(preset);
    for (int unit = 0; unit < 3; ++unit) {
        const bool experts = expert_ranks > 0 && unit == 1;
        spec.add_unit("unit." + std::to_string(unit), experts ? VESCOMM_FSDP_EXPERTS : 0);
        const std::int64_t shapes[][2] = {{17 + unit, 6}, {0, 3}, {unit == 1 ? 12 : 5, 7}};
        for (int i = 0; i < 3; ++i) {
            vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
            const std::string name = "p" + std::to_string(i);
            parameter.name = name.c_str();
            parameter.shape = shapes[i];
            parameter.dimensions = 2;
            parameter.block_rows = block_rows;
            if (i == 2 && unit == 1) parameter.flags = VESCOMM_FSDP_FROZEN;
            spec.add_parameter(static_cast<std::size_t>(unit), parameter);
        }
    }
    spec.complete();
    return spec;
}

int elsewhere(const std::vector<int> &nodes, int distance) {
    int count = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank)
        count += nodes[(rank + static_cast<std::size_t>(distance)) % nodes.size()] != nodes[rank];
    return count;
}

TEST(Partners, AreOnOtherNodes) {
    EXPECT_EQ(partner_distance(std::vector{0, 0}), 1);
    EXPECT_EQ(partner_distance(std::vector{0, 0, 0}), 1);
    EXPECT_EQ(partner_distance(std::vector{0, 1, 2}), 1);
    EXPECT_EQ(partner_distance(std::vector{0, 0, 1, 1}), 2);
    EXPECT_EQ(partner_distance(std::vector{0, 1, 0, 1}), 1);
    EXPECT_EQ(partner_distance(std::vector{0, 0, 0, 1, 1, 1, 2}), 3);
    // No distance serves all ranks if a node has more than half of them.
    const std::vector<int> uneven = {0, 0, 0, 1};
    const int distance = partner_distance(uneven);
    for (int other = 1; other < 4; ++other)
        EXPECT_GE(elsewhere(uneven, distance), elsewhere(uneven, other));
    std::mt19937 random(1);
    for (int repetition = 0; repetition < 200; ++repetition) {
        std::vector<int> nodes(2 + random() % 9);
        for (int &node : nodes) node = static_cast<int>(random() % 3);
        const int chosen = partner_distance(nodes);
        ASSERT_GE(chosen, 1);
        ASSERT_LT(chosen, static_cast<int>(nodes.size()));
        for (int other = 1; other < static_cast<int>(nodes.size()); ++other)
            EXPECT_GE(elsewhere(nodes, chosen), elsewhere(nodes, other));
    }
}

TEST(Partners, ExistWithoutReplicasOnly) {
    for (const auto &[preset, ranks, expected] : {std::tuple{"zero3", 4, true},
                                                  {"zero1", 4, true},
                                                  {"zero3", 1, false},
                                                  {"ddp", 4, false},
                                                  {"hsdp:2", 4, false},
                                                  {"hsdp:4", 4, true}}) {
        const Spec spec = spec_of(preset);
        EXPECT_EQ(has_partner_copies(spec, make_mesh(spec, ranks)), expected) << preset;
    }
}

Mesh zero3_mesh(int ranks) {
    return make_mesh(spec_of("zero3"), ranks);
}

TEST(Survivors, NameALostShard) {
    const auto missing = [](std::vector<Holding> holdings) {
        return Survivors(zero3_mesh(4), std::move(holdings)).missing();
    };
    // Rank r has the copy of rank r - 1.
    EXPECT_EQ(missing({{0, 5, 1, 3}, {2, 5, 1, 1}, {3, 5, 1, 2}}), "");
    EXPECT_EQ(missing({{0, 5, 1, 3}, {3, 5, 1, 2}}),
              "no survivor has the shard of rank 1; the failed ranks are 1, 2 of 4");
    EXPECT_EQ(missing({{0, 5, 1, -1}, {1, 5, 1, -1}, {3, 5, 1, -1}}),
              "no survivor has the shard of rank 2; the failed ranks are 2 of 4");
    // Ranks 1 and 3 are replicas.
    const Mesh groups = make_mesh(spec_of("hsdp:2"), 4);
    EXPECT_EQ(Survivors(groups, {{0, 5, 1, -1}, {2, 5, 1, -1}}).missing(),
              "no survivor has the shard of rank 1, rank 3; the failed ranks are 1, 3 of 4");
}

TEST(Survivors, PassOneFolder) {
    const auto different = [](std::uint64_t second) {
        return Survivors(zero3_mesh(3), {{0, 5, 1, -1, 7}, {2, 5, 1, -1, second}})
            .different_folders();
    };
    EXPECT_EQ(different(7), "");
    EXPECT_NE(different(0).find("ranks 0 and 1 of the survivors"), std::string::npos);
    EXPECT_NE(different(8), "");
}

TEST(Survivors, NeverMixValuesOfDifferentSteps) {
    const auto missing = [](std::vector<Holding> holdings) {
        return Survivors(zero3_mesh(2), std::move(holdings)).missing();
    };
    EXPECT_NE(missing({{0, 5, 1, 1}, {1, 6, 1, 0}}), "");
    EXPECT_NE(missing({{0, 5, 1, 1}, {1, 5, 0, 0}}), "");
    EXPECT_EQ(missing({{0, 5, 1, 1}, {1, 5, 1, 0}}), "");
}

// Every element of every new shard comes from exactly one survivor that has it.
void check_segments(const Spec &old_spec, int old_ranks, const Spec &new_spec,
                    const std::vector<Holding> &holdings) {
    const ModelPlan from = plan_model(old_spec, old_ranks);
    const ModelPlan to = plan_model(new_spec, static_cast<int>(holdings.size()));
    const Survivors survivors(from.mesh, holdings);
    ASSERT_EQ(survivors.missing(), "");
    std::map<std::pair<int, std::size_t>, std::set<std::int64_t>> taken;  // by rank and parameter
    for (std::size_t unit = 0; unit < 3; ++unit)
        for (const Segment &segment : segments_of(from, to, unit, survivors)) {
            const Holding &giver = holdings[static_cast<std::size_t>(segment.from)];
            const bool own = from.mesh.position(static_cast<int>(giver.rank)) == segment.position;
            EXPECT_EQ(survivors.own(segment.from, segment.position), own);
            EXPECT_TRUE(own || giver.copied_rank == segment.position);
            // The segment lies in the old shard of its position.
            bool inside = false;
            const auto &at = *from.parameter_places[segment.parameter];
            for (const auto &piece : from.buckets[at.bucket].pieces(segment.position))
                inside |= piece.parameter == segment.parameter && piece.first <= segment.first &&
                          segment.first + segment.elements <= piece.first + piece.elements;
            EXPECT_TRUE(inside);
            for (std::int64_t i = 0; i < segment.elements; ++i)
                EXPECT_TRUE(taken[std::pair(segment.to, segment.parameter)]
                                .insert(segment.first + i)
                                .second);
        }
    for (int rank = 0; rank < to.mesh.ranks; ++rank)
        for (const Bucket &bucket : to.buckets)
            for (const auto &piece : bucket.pieces(to.mesh.position(rank))) {
                auto &elements = taken[std::pair(rank, std::size_t{piece.parameter})];
                for (std::int64_t i = 0; i < piece.elements; ++i)
                    EXPECT_EQ(elements.erase(piece.first + i), 1u);
            }
    for (const auto &[key, rest] : taken) EXPECT_TRUE(rest.empty());
}

TEST(Redistribution, CoversEveryNewShardOnce) {
    for (int ranks = 2; ranks <= 7; ++ranks)
        for (int failed = 0; failed < ranks; ++failed) {
            std::vector<Holding> holdings;
            for (int rank = 0; rank < ranks; ++rank)
                if (rank != failed) holdings.push_back({rank, 1, 1, (rank + ranks - 1) % ranks});
            check_segments(spec_of("zero3"), ranks, spec_of("zero3"), holdings);
            check_segments(spec_of("zero3"), ranks, spec_of("ddp"), holdings);
            check_segments(spec_of("zero3"), ranks, spec_of("zero1", -1), holdings);
        }
    // Replicas: ranks 0 and 2 have one shard, 1 and 3 the other.
    check_segments(spec_of("hsdp:2"), 4, spec_of("zero3"),
                   {{0, 1, 1, -1}, {2, 1, 1, -1}, {3, 1, 1, -1}});
}

// The survivors may divide the experts among another number of ranks.
TEST(Redistribution, MovesExperts) {
    for (const int ranks : {4, 6, 7})
        for (const int before : {1, 2, 6})
            for (const int after : {1, 2, 3, 6}) {
                if (ranks % before != 0 || (ranks - 1) % after != 0) continue;
                for (int failed = 0; failed < ranks; ++failed) {
                    std::vector<Holding> holdings;
                    for (int rank = 0; rank < ranks; ++rank)
                        if (rank != failed)
                            holdings.push_back({rank, 1, 1, (rank + ranks - 1) % ranks});
                    check_segments(spec_of("zero3", 1, before), ranks, spec_of("zero3", 1, after),
                                   holdings);
                }
            }
    check_segments(spec_of("hsdp:2", 1, 2), 4, spec_of("zero3", 1, 3),
                   {{0, 1, 1, -1}, {2, 1, 1, -1}, {3, 1, 1, -1}});
}

TEST(Redistribution, RefusesAnotherTypeOfMasters) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    const Spec wide(options);
    options.master_type = VESCOMM_BF16;
    const Spec narrow(options);
    require_same_values(narrow, narrow);
    try {
        require_same_values(narrow, wide);
        FAIL() << "masters are bf16 and f32";
    } catch (const Failure &error) {
        EXPECT_NE(std::string(error.what()).find("f32 in the specification and bf16"),
                  std::string::npos)
            << error.what();
    }
}

TEST(Redistribution, RefusesAnotherModel) {
    const Spec spec = spec_of("zero3");
    require_same_values(spec, spec_of("ddp", -1));
    Spec more = spec_of("zero3");
    more.add_unit("one more");
    vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
    parameter.name = "p";
    more.add_parameter(3, parameter);
    EXPECT_THROW(require_same_values(spec, more), Failure);

    Spec other(vescomm_fsdp_spec_options_init());
    other.add_unit("u");
    other.add_parameter(0, parameter);
    Spec plain = other;
    const std::uint64_t ids[] = {0};
    const vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
    plain.add_group(ids, *vescomm_optimizer_get_sgd(), &settings);
    plain.complete();
    other.complete();
    try {
        require_same_values(other, plain);
        FAIL() << "AdamW has two states, and this SGD none";
    } catch (const Failure &error) {
        EXPECT_NE(std::string(error.what()).find("states of the optimizer"), std::string::npos);
    }
}

}  // namespace
}  // namespace vescomm::fsdp
