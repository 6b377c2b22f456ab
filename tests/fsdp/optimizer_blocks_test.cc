// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Optimizers that need whole blocks or whole matrices: shards are cut between them, so that the
// parameters have the same bits for any number of ranks.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>

#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

// The begin of settings, as of all kinds.
struct Settings {
    std::uint32_t struct_size = sizeof(Settings);
    std::int32_t reserved = 0;
    std::int64_t block = 0;
};

// Divides the gradients of each block by their norm.
struct NormalisedSgd {
    explicit NormalisedSgd(bool concurrent = false) {
        kind = vescomm_optimizer_kind_init();
        kind.name = "normalised sgd";
        kind.context = this;
        kind.settings_bytes = sizeof(Settings);
        kind.concurrent = concurrent ? 1 : 0;
        kind.needs = [](void *, const void *settings, vescomm_optimizer_needs_t *needs,
                        const char **) {
            needs->block_elements = static_cast<const Settings *>(settings)->block;
            return 0;
        };
        kind.step = [](void *context, const void *settings, const vescomm_optimizer_run_t *run) {
            auto &self = *static_cast<NormalisedSgd *>(context);
            for (std::size_t i = 0; i < run->piece_count; ++i)
                self.update(*vescomm_optimizer_piece_at(run->pieces, i),
                            static_cast<const Settings *>(settings)->block, *run);
            return 0;
        };
    }

    void update(const vescomm_optimizer_piece_t &piece, std::int64_t block,
                const vescomm_optimizer_run_t &run) {
        const std::int64_t matrix = piece.rows * piece.columns;
        for (std::int64_t done = 0; done < piece.elements;) {
            const std::int64_t place = (piece.first + done) % matrix;
            const std::int64_t length =
                block == -1 ? matrix : std::min(block - place % block, matrix - place);
            if ((block == -1 ? place : place % block) != 0 || length > piece.elements - done) {
                ++cuts;
                return;
            }
            double squares = 0;
            const float *const gradient = run.gradient + piece.offset + done;
            for (std::int64_t i = 0; i < length; ++i)
                squares += std::pow(static_cast<double>(gradient[i]) * run.gradient_scale, 2);
            const double factor = squares > 0 ? 0.01 * run.gradient_scale / std::sqrt(squares) : 0;
            for (std::int64_t i = 0; i < length; ++i)
                run.master[piece.offset + done + i] -= static_cast<float>(factor * gradient[i]);
            done += length;
            ++blocks;
        }
    }

    vescomm_optimizer_kind_t kind;
    std::atomic<int> cuts = 0;  // blocks that are not whole
    std::atomic<int> blocks = 0;
};

// With parameters whose own blocks are neither multiples nor divisors of those of the optimizer.
std::vector<UnitModel> model() {
    std::vector<UnitModel> units = odd_model();
    units.push_back({"long",
                     {{.name = "vector", .shape = {100'003}},
                      {.name = "rows", .shape = {301, 33}, .block_rows = 7},
                      {.name = "blocks", .shape = {40, 50}, .block_elements = 15},
                      {.name = "batches", .shape = {4, 6, 25}, .batch_dimensions = 1}}});
    return units;
}

struct Case {
    int ranks = 1;
    std::string preset = "zero3";
    std::int64_t block = -1;
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    bool concurrent = false;
};

Outcome train_blocks(const Case &test) {
    Outcome outcome;
    NormalisedSgd sgd(test.concurrent);
    run_ranks(test.ranks, [&](Communicator &comm) {
        Described described = describe(model(), test.preset, test.options);
        Settings settings;
        settings.block = test.block;
        described.spec.add_group(all_ids(described), &sgd.kind, &settings);
        const Outcome own = train(comm, described, {.steps = 2, .max_norm = 5});
        if (comm.rank() == 0) outcome = own;
    });
    EXPECT_EQ(sgd.cuts, 0);
    EXPECT_GT(sgd.blocks, 0);
    return outcome;
}

TEST(OptimizerBlocks, HaveTheBitsOfOneRank) {
    for (const std::int64_t block : {-1, 6, 100, 4096}) {
        SCOPED_TRACE("blocks of " + std::to_string(block));
        const Outcome one = train_blocks({.block = block});
        ASSERT_FALSE(one.parameters.empty());
        for (const int ranks : {2, 3, 5})
            EXPECT_EQ(train_blocks({.ranks = ranks, .block = block}).parameters, one.parameters)
                << ranks << " ranks";
        for (const char *preset : {"hsdp:2", "zero1", "ddp"})
            EXPECT_EQ(train_blocks({.ranks = 4, .preset = preset, .block = block}).parameters,
                      one.parameters)
                << preset;
    }
}

TEST(OptimizerBlocks, AreNotCutBetweenThreads) {
    for (const std::int64_t block : {-1, 7}) {
        Case test = {.ranks = 2, .block = block, .concurrent = true};
        test.options.update_threads = 3;
        EXPECT_EQ(train_blocks(test).parameters, train_blocks({.block = block}).parameters);
    }
}

TEST(OptimizerBlocks, AreKeptInCodes) {
    for (const std::int64_t block : {-1, 50}) {
        Case test = {.block = block};
        test.options.gather_type = VESCOMM_I8;
        test.options.reduce_type = VESCOMM_I8;
        const Outcome one = train_blocks(test);
        test.ranks = 3;
        train_blocks(test);  // sums of codes round differently for other ranks
        test.options.reduce_type = 0;
        const Outcome three = train_blocks(test);
        test.ranks = 1;
        EXPECT_EQ(three.parameters, train_blocks(test).parameters);
        EXPECT_EQ(one.parameters.size(), three.parameters.size());
    }
}

TEST(OptimizerBlocks, OfAGroupStay) {
    NormalisedSgd sgd;
    run_ranks(2, [&](Communicator &comm) {
        Described described = describe(odd_model());
        Settings settings;
        settings.block = 6;
        const std::uint64_t group =
            described.spec.add_group({described.ids[1]}, &sgd.kind, &settings);
        Engine engine(described.spec, comm);
        settings.block = 8;
        EXPECT_NE(sentence_of([&] { engine.set_group(group, &settings); })
                      .find("the settings need blocks of 8 elements and the group has 6; create "
                            "another engine"),
                  std::string::npos);
    });
}

TEST(OptimizerBlocks, AreNotNegative) {
    NormalisedSgd sgd;
    Described described = describe(odd_model());
    Settings settings;
    settings.block = -2;
    EXPECT_EQ(
        sentence_of([&] { described.spec.add_group({described.ids[1]}, &sgd.kind, &settings); }),
        "vescomm_fsdp_add_group: \"normalised sgd\" needs blocks of -2 elements; at least -1 is "
        "possible, for whole matrices");
}

// Each matrix reaches `matrix`, once and whole, and everything else reaches `step`.
TEST(OptimizerBlocks, MatricesHaveAFunctionOfTheirOwn) {
    std::vector<UnitModel> units{{"unit",
                                  {{.name = "first", .shape = {11}},
                                   {.name = "one", .shape = {37, 12}, .flags = VESCOMM_FSDP_MATRIX},
                                   {.name = "table", .shape = {50, 7}},
                                   {.name = "three",
                                    .shape = {3, 20, 9},
                                    .batch_dimensions = 1,
                                    .flags = VESCOMM_FSDP_MATRIX},
                                   {.name = "last", .shape = {1001}}}}};
    struct Counted {
        std::atomic<int> matrices = 0, wrong = 0;
        std::atomic<std::int64_t> others = 0;
    };
    for (const bool concurrent : {false, true})
        for (const int ranks : {1, 3, 4}) {
            SCOPED_TRACE(::testing::Message() << ranks << " ranks, concurrent " << concurrent);
            Counted counted;
            NormalisedSgd whole(concurrent), both(concurrent);
            both.kind.matrix = both.kind.step;
            vescomm_optimizer_kind_t counting = both.kind;
            counting.context = &counted;
            counting.step = [](void *context, const void *, const vescomm_optimizer_run_t *run) {
                for (std::size_t i = 0; i < run->piece_count; ++i) {
                    const auto *piece = vescomm_optimizer_piece_at(run->pieces, i);
                    auto &self = *static_cast<Counted *>(context);
                    if ((piece->flags & VESCOMM_FSDP_MATRIX) != 0) ++self.wrong;
                    self.others += piece->elements;
                }
                return 0;
            };
            counting.matrix = [](void *context, const void *, const vescomm_optimizer_run_t *run) {
                auto &self = *static_cast<Counted *>(context);
                const auto *piece = run->pieces;
                if (run->piece_count != 1 || piece->offset != 0 ||
                    piece->elements != piece->rows * piece->columns ||
                    run->elements != piece->elements || piece->first % piece->elements != 0)
                    ++self.wrong;
                ++self.matrices;
                return 0;
            };
            const auto train_with = [&](const vescomm_optimizer_kind_t &kind) {
                Outcome outcome;
                run_ranks(ranks, [&](Communicator &comm) {
                    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                    options.update_threads = 2;
                    Described described = describe(units, "zero3", options);
                    Settings settings;
                    settings.block = -1;
                    described.spec.add_group(all_ids(described), &kind, &settings);
                    const Outcome own = train(comm, described, {.steps = 2});
                    if (comm.rank() == 0) outcome = own;
                });
                return outcome;
            };
            EXPECT_EQ(train_with(both.kind).parameters, train_with(whole.kind).parameters);
            EXPECT_EQ(both.cuts, 0);
            train_with(counting);
            EXPECT_EQ(counted.matrices, 2 * 4);
            EXPECT_EQ(counted.others, 2 * (11 + 350 + 1001));
            EXPECT_EQ(counted.wrong, 0);
        }
}

// Each matrix is whole in one piece, and the optimizer sees the flag.
TEST(OptimizerBlocks, MatricesStayWholeByAFlag) {
    std::vector<UnitModel> units{{"unit",
                                  {{.name = "one", .shape = {37, 12}, .flags = VESCOMM_FSDP_MATRIX},
                                   {.name = "vector", .shape = {1001}},
                                   {.name = "three",
                                    .shape = {3, 20, 9},
                                    .batch_dimensions = 1,
                                    .block_rows = 4,
                                    .flags = VESCOMM_FSDP_MATRIX}}}};
    for (const int ranks : {1, 3, 4})
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(units);
            Engine engine(described.spec, comm);
            for (const vescomm_optimizer_piece_t &piece : engine.pieces(0)) {
                const bool matrix = piece.parameter != described.ids[0][1];
                EXPECT_EQ(piece.flags, matrix ? VESCOMM_FSDP_MATRIX : 0);
                if (!matrix) continue;
                EXPECT_EQ(piece.first % (piece.rows * piece.columns), 0);
                EXPECT_EQ(piece.elements % (piece.rows * piece.columns), 0);
            }
        });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
