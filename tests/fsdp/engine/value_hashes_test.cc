// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The comparison of values that several ranks hold.
#include "fsdp/engine/value_hashes.h"

#include <gtest/gtest.h>

#include "vescomm/optimizer.h"

namespace vescomm::fsdp {
namespace {

const std::vector<std::string> names{"a", "b"};

ModelPlan plan_of(const std::string &preset, int ranks) {
    Spec spec(vescomm_fsdp_spec_options_init());
    spec.use_preset(preset);
    for (const std::string &name : names) {
        const std::size_t unit = spec.add_unit(name);
        const std::int64_t shape[] = {12};
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "weight";
        parameter.shape = shape;
        parameter.dimensions = 1;
        spec.add_parameter(unit, parameter);
    }
    spec.complete();
    return plan_model(spec, ranks);
}

// Equal hashes on all ranks that hold a shard: masters and two states of two units.
std::vector<HeldValues> equal_values(const ModelPlan &plan, bool copies = false) {
    std::vector<HeldValues> all;
    const auto of = [&](int rank) {
        std::vector<std::uint64_t> hashes;
        for (std::uint64_t part = 0; part < 6; ++part)
            hashes.push_back(100 * static_cast<std::uint64_t>(plan.mesh.position(rank)) + part);
        return hashes;
    };
    for (int rank = 0; rank < plan.mesh.ranks; ++rank) {
        all.push_back({of(rank), {}, {}});
        if (!copies) continue;
        all.back().copied_rank = (rank + plan.mesh.ranks - 1) % plan.mesh.ranks;
        all.back().copy = of(*all.back().copied_rank);
    }
    return all;
}

void expect_words(const std::string &sentence, std::initializer_list<const char *> words) {
    for (const char *word : words)
        EXPECT_NE(sentence.find(word), std::string::npos) << word << ": " << sentence;
}

TEST(ValueHashes, DifferOnlyWhereValuesDo) {
    const ModelPlan plan = plan_of("ddp", 2);
    const Shards first(plan, 0), second(plan, 1);
    const auto hashes = hash_values(plan, first, 0);
    EXPECT_EQ(hashes.size(), 6U);
    EXPECT_EQ(hashes, hash_values(plan, second, 1));
    for (std::size_t bucket = 0; bucket < 2; ++bucket)
        for (std::size_t state = 0; state < 3; ++state) {
            auto *values = static_cast<float *>(state == 0 ? second.master(bucket).data
                                                           : second.state(bucket, state - 1));
            const auto last = static_cast<std::size_t>(plan.buckets[bucket].shard(0)) - 1;
            values[last] = -0.0f;  // other bits of an equal number
            const auto changed = hash_values(plan, second, 1);
            for (std::size_t part = 0; part < 6; ++part)
                EXPECT_EQ(changed[part] != hashes[part], part == 3 * bucket + state) << part;
            values[last] = 0.0f;
        }
}

TEST(ValueHashes, AreExchangedAsWords) {
    for (const bool copies : {false, true}) {
        const auto all = equal_values(plan_of("zero3", 3), copies);
        for (const HeldValues &held : all) {
            const HeldValues again = HeldValues::of_words(held.words());
            EXPECT_EQ(again.own, held.own);
            EXPECT_EQ(again.copied_rank, held.copied_rank);
            EXPECT_EQ(again.copy, held.copy);
        }
    }
}

// Every rank and every hash.
TEST(ValueHashes, NameTheRankThatDiffersFromTheOthers) {
    const ModelPlan plan = plan_of("hsdp:2", 8);
    const auto equal = equal_values(plan);
    EXPECT_EQ(compare_values(plan, equal, names), "");
    for (std::size_t rank = 0; rank < 8; ++rank)
        for (std::size_t part = 0; part < 6; ++part) {
            auto all = equal;
            all[rank].own[part] += 1;
            const std::string unit = part < 3 ? "\"a\"" : "\"b\"";
            const std::string values =
                part % 3 == 0 ? "the masters" : "state " + std::to_string(part % 3 - 1);
            const std::string guilty = "of rank " + std::to_string(rank) + " differ";
            expect_words(compare_values(plan, all, names),
                         {unit.c_str(), values.c_str(), guilty.c_str(), "most of the 4 ranks"});
        }
}

TEST(ValueHashes, NameTwoRanksIfNoneIsUsual) {
    const ModelPlan plan = plan_of("ddp", 2);
    auto two = equal_values(plan);
    two[1].own[3] = 7;
    expect_words(compare_values(plan, two, names), {"masters of unit \"b\"", "rank 0 and rank 1"});
    const ModelPlan four_plan = plan_of("ddp", 4);
    auto four = equal_values(four_plan);
    four[2].own[0] = four[3].own[0] = 7;
    expect_words(compare_values(four_plan, four, names), {"rank 0 and rank 2"});
}

TEST(ValueHashes, ComparePartnerCopies) {
    const ModelPlan plan = plan_of("zero3", 3);
    auto all = equal_values(plan, true);
    EXPECT_EQ(compare_values(plan, all, names), "");
    all[0].copy[4] = 7;
    expect_words(compare_values(plan, all, names),
                 {"state 0 of unit \"b\"", "rank 2", "rank 0 (in its partner copy)"});
}

}  // namespace
}  // namespace vescomm::fsdp
