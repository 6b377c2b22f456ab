// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/gather_blocks.h"

#include <gtest/gtest.h>

#include "fsdp/quantise/block_quantise.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::testing {

namespace {

void add_blocks(GatherBlocks &blocks, const Bucket &bucket, const GatherRun &run) {
    for (std::int64_t period = 0; period < run.elements; period += run.period) {
        const std::int64_t end = std::min(period + run.period, run.elements);
        for (std::int64_t block = period; block < end; block += run.block) {
            const std::int64_t size = std::min(run.block, end - block);
            const Place *place = nullptr;
            for (const Place &one : bucket.places)
                if (one.offset <= run.offset + block &&
                    run.offset + block < one.offset + one.elements)
                    place = &one;
            ASSERT_NE(place, nullptr);
            const std::int64_t first = run.offset + block - place->offset;
            ASSERT_LE(first + size, place->elements);
            for (std::int64_t i = first; i < first + size; ++i)
                ASSERT_TRUE(
                    blocks.emplace(std::pair(place->parameter, i), std::pair(first, size)).second);
        }
    }
}

GatherBlocks blocks_of_plan(const ModelPlan &plan) {
    GatherBlocks blocks;
    for (const Bucket &bucket : plan.buckets) {
        if (!bucket.quantised()) continue;
        const GatherCodes &codes = bucket.codes;
        for (std::size_t rank = 0; rank + 1 < codes.cuts.size(); ++rank) {
            EXPECT_EQ(codes.cuts[rank] % 4, 0);
            std::uint64_t scales = 0;
            for (std::size_t i = codes.first_run[rank]; i < codes.first_run[rank + 1]; ++i) {
                const GatherRun &run = codes.runs[i];
                const auto begin = static_cast<std::uint64_t>(codes.cuts[rank]);
                const auto shard = static_cast<std::uint64_t>(bucket.shard(static_cast<int>(rank)));
                EXPECT_EQ(run.codes - begin,
                          static_cast<std::uint64_t>(run.offset - bucket.cuts[rank]));
                EXPECT_GE(run.scales, begin + shard);
                if (i > codes.first_run[rank]) {
                    EXPECT_EQ(run.scales, scales);
                }
                const std::size_t before = blocks.size();
                add_blocks(blocks, bucket, run);
                EXPECT_EQ(blocks.size() - before, static_cast<std::size_t>(run.elements));
                // One scale for each block, one after another.
                scales = run.scales;
                for (std::int64_t p = 0; p < run.elements; p += run.period)
                    scales += 4 * blocks_of(std::min(run.period, run.elements - p), run.block);
                EXPECT_LE(scales, static_cast<std::uint64_t>(codes.cuts[rank + 1]));
            }
        }
    }
    return blocks;
}

}  // namespace

GatherBlocks gather_blocks(const std::vector<GatherParameter> &parameters,
                           const vescomm_fsdp_spec_options_t &options, int ranks) {
    Spec spec(options);
    for (const GatherParameter &from : parameters) {
        while (spec.units().size() <= from.unit)
            spec.add_unit("unit." + std::to_string(spec.units().size()));
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = from.name.c_str();
        parameter.shape = from.shape.data();
        parameter.dimensions = static_cast<std::int32_t>(from.shape.size());
        parameter.batch_dimensions = from.batch_dimensions;
        parameter.block_rows = from.block_rows;
        parameter.block_elements = from.block_elements;
        parameter.gather_type = from.gather_type;
        spec.add_parameter(from.unit, parameter);
    }
    spec.complete();
    return blocks_of_plan(plan_model(spec, ranks));
}

void quantise_block(vescomm_type_t type, float *values, std::size_t count) {
    const CodeType code_type = type == VESCOMM_I8 ? CodeType::int8 : CodeType::f8e4m3;
    std::vector<std::byte> codes(count);
    float scale = 0;
    quantise(code_type, values, VESCOMM_F32, count, count, codes.data(), &scale);
    dequantise(code_type, codes.data(), &scale, count, count, values, VESCOMM_F32);
}

}  // namespace vescomm::fsdp::testing
