// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks models for which the planner was not tuned, in every mode, with the independent reference.
#include <gtest/gtest.h>

#include <span>

#include "other_models.h"
#include "planner_reference.h"
#include "random_model.h"

namespace vescomm::planner {
namespace {

struct Named {
    const char *name;
    Model (*make)();
    std::int64_t elements;  // published parameters plus the buffers of batch norms
};

constexpr Named models[] = {
    {"ResNet-50", reference::resnet_50, 25'557'032 + 2 * 26'560 + 53},
    {"ViT-L/16", reference::vit_l_16, 304'326'632},
    {"BERT-large", reference::bert_large, 335'141'888},
    {"T5-large", reference::t5_large, 737'668'096},
    {"U-Net", reference::u_net, 31'037'698 + 2 * 5'888 + 18},
    {"DLRM", reference::dlrm, 187'767'399ll * 128 + 171'392 + 2'197'505},
    {"Mamba-2", reference::mamba2, 2'702'599'680},
};

TEST(PlannerOtherModels, HavePublishedElementCounts) {
    for (const Named &named : models) {
        std::int64_t elements = 0;
        for (const Unit &unit : named.make().units)
            for (const Tensor &tensor : unit.tensors) elements += reference::elements(tensor);
        EXPECT_EQ(elements, named.elements) << named.name;
    }
}

// A row of a convolution is an output channel. Vectors may be cut anywhere, unless they are whole.
Model with_blocks(Model model, std::int64_t rows, std::int64_t alignment) {
    for (Unit &unit : model.units) {
        for (Tensor &tensor : unit.tensors) {
            if (tensor.shape.size() >= 2 || rows == -1) tensor.block_rows = rows;
            tensor.alignment = alignment;
        }
    }
    return model;
}

constexpr Mode all_modes[] = {Mode::ragged, Mode::uniform, Mode::balanced, Mode::owner,
                              Mode::automatic};
constexpr std::int64_t all_blocks[] = {1, 16, 32, 128, -1};

void expect_valid_in_every_mode(const Model &model, std::int64_t start_alignment) {
    for (const Mode mode : all_modes) {
        SCOPED_TRACE(testing::Message() << "mode " << static_cast<int>(mode));
        const Options options{.mode = mode, .start_alignment = start_alignment};
        const ModelAnswer answer = plan(model, options);
        reference::expect_valid(model, options, answer);
        if (testing::Test::HasFailure()) return;
    }
}

void expect_valid_models(std::span<const int> ranks, std::span<const std::int64_t> alignments) {
    std::size_t turn = 0;
    for (const Named &named : models) {
        for (const int count : ranks) {
            for (const std::int64_t rows : all_blocks) {
                const std::int64_t alignment = alignments[turn++ % alignments.size()];
                SCOPED_TRACE(testing::Message()
                             << named.name << ", " << count << " ranks, blocks of " << rows
                             << ", aligned to " << alignment);
                Model model = with_blocks(named.make(), rows, alignment);
                model.ranks = count;
                expect_valid_in_every_mode(model, alignment == 0 ? 64 : 1);
                if (testing::Test::HasFailure()) return;
            }
        }
    }
}

TEST(PlannerOtherModels, AreValidInEveryMode) {
    constexpr int ranks[] = {3, 7, 24, 96, 384, 1000, 1536};
    constexpr std::int64_t alignments[] = {0, 8, 128};
    expect_valid_models(ranks, alignments);
}

// Slow; for nightly runs.
TEST(PlannerOtherModelsLong, AreValidInEveryModeOnUpToAHundredThousandRanks) {
    constexpr int ranks[] = {3, 7, 24, 96, 384, 1000, 1536, 12288, 100000};
    constexpr std::int64_t alignments[] = {0, 8, 128};
    for (const std::int64_t &alignment : alignments)
        expect_valid_models(ranks, std::span(&alignment, 1));
}

}  // namespace
}  // namespace vescomm::planner
