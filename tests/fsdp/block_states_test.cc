// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// States of optimizers with an element for each block: those of a kind of the program, and AdamW
// with moments in 8 bits.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/experts.h"
#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

struct Settings {
    std::uint32_t struct_size = sizeof(Settings);
    std::int32_t reserved = 0;
    std::int64_t block = 0;
};

// Divides gradients by the root of a mean square of their block, and counts the updates of each
// block: two states of other types than the momentum of each element.
const vescomm_optimizer_kind_t *block_rms() {
    static const vescomm_optimizer_kind_t kind = [] {
        vescomm_optimizer_kind_t made = vescomm_optimizer_kind_init();
        made.name = "block rms";
        made.settings_bytes = sizeof(Settings);
        made.concurrent = 1;
        made.needs = [](void *, const void *settings, vescomm_optimizer_needs_t *needs,
                        const char **) {
            static const vescomm_optimizer_state_t states[] = {
                {sizeof states[0], VESCOMM_F64, "mean square", 1, 0},
                {sizeof states[0], VESCOMM_F32, "momentum", 0, 0},
                {sizeof states[0], VESCOMM_I32, "updates", 1, 0}};
            needs->states = states;
            needs->state_count = 3;
            needs->block_elements = static_cast<const Settings *>(settings)->block;
            return 0;
        };
        made.step = [](void *, const void *settings, const vescomm_optimizer_run_t *run) {
            const std::int64_t block = static_cast<const Settings *>(settings)->block;
            for (std::size_t i = 0; i < run->piece_count; ++i) {
                const vescomm_optimizer_piece_t &piece =
                    *vescomm_optimizer_piece_at(run->pieces, i);
                const std::int64_t matrix = piece.rows * piece.columns;
                std::int64_t number = piece.block;
                for (std::int64_t done = 0; done < piece.elements; ++number) {
                    const std::int64_t place = (piece.first + done) % matrix;
                    const std::int64_t length =
                        block == -1 ? matrix : std::min(block, matrix - place);
                    double &mean = static_cast<double *>(run->state[0])[number];
                    auto &updates = static_cast<std::int32_t *>(run->state[2])[number];
                    if (++updates != run->step) return 1;
                    const std::int64_t begin = piece.offset + done;
                    double squares = 0;
                    for (std::int64_t e = begin; e < begin + length; ++e)
                        squares += std::pow(static_cast<double>(run->gradient[e]), 2);
                    mean = 0.9 * mean + 0.1 * squares / static_cast<double>(length);
                    for (std::int64_t e = begin; e < begin + length; ++e) {
                        float &momentum = static_cast<float *>(run->state[1])[e];
                        momentum = 0.5f * momentum + run->gradient[e];
                        run->master[e] -=
                            static_cast<float>(0.01 * momentum / (std::sqrt(mean) + 1e-3));
                    }
                    done += length;
                }
            }
            return 0;
        };
        return made;
    }();
    return &kind;
}

// Blocks of parameters that are neither multiples nor divisors of those of the optimizer.
std::vector<UnitModel> model() {
    std::vector<UnitModel> units = odd_model();
    units.push_back({"long",
                     {{.name = "vector", .shape = {100'003}},
                      {.name = "rows", .shape = {301, 33}, .block_rows = 7},
                      {.name = "batches", .shape = {4, 6, 25}, .batch_dimensions = 1},
                      {.name = "whole", .shape = {777}, .flags = VESCOMM_FSDP_REPLICATED}}});
    return units;
}

// Whole parameters of a model have AdamW with 8-bit moments, or the kind above.
struct Case {
    int ranks = 1;
    std::string preset = "zero3";
    std::optional<std::int64_t> block = {};  // of the kind above; none: adam8bit
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
};

Described described_for(const Case &test) {
    Described described = describe(model(), test.preset, test.options);
    // Groups with other blocks share buckets.
    std::vector<std::uint64_t> odd, even;
    for (const std::uint64_t id : all_ids(described)) (id % 2 == 0 ? even : odd).push_back(id);
    if (!test.block) {
        vescomm_adamw_settings_t adamw = vescomm_adamw_settings_init();
        adamw.learning_rate = 0.01;
        described.spec.add_group(all_ids(described), vescomm_optimizer_get_adam8bit(), &adamw);
        return described;
    }
    Settings settings;
    settings.block = *test.block;
    described.spec.add_group(even, block_rms(), &settings);
    settings.block = 11;
    described.spec.add_group(odd, block_rms(), &settings);
    return described;
}

// Trains two steps, saves after the first one if there is a folder, and returns all parameters.
std::vector<float> train_case(const Case &test, const std::string &folder = {}) {
    std::vector<float> seen;
    run_ranks(test.ranks, [&](Communicator &comm) {
        const Described described = described_for(test);
        Engine engine(described.spec, comm);
        EXPECT_EQ(engine.counters().allocated_bytes,
                  described.spec.report(test.ranks, comm.rank()).peak_bytes);
        fill(engine);
        for (int step = 0; step < 2; ++step) {
            micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
            engine.step();
            if (step == 0 && !folder.empty()) engine.save(folder).wait(60);
        }
        engine.check_replicas();
        const std::vector<float> all = read_all(engine, described.ids);
        if (comm.rank() == 0) seen = all;
    });
    return seen;
}

const std::optional<std::int64_t> kinds[] = {std::nullopt, -1, 1, 6, 4096};

TEST(BlockStates, HaveTheBitsOfOneRank) {
    for (const auto &block : kinds) {
        SCOPED_TRACE(block ? "blocks of " + std::to_string(*block) : "adam8bit");
        const std::vector<float> one = train_case({.block = block});
        ASSERT_FALSE(one.empty());
        for (const int ranks : {2, 3, 5})
            EXPECT_EQ(train_case({.ranks = ranks, .block = block}), one) << ranks << " ranks";
        for (const char *preset : {"hsdp:2", "zero1", "ddp"})
            EXPECT_EQ(train_case({.ranks = 4, .preset = preset, .block = block}), one) << preset;
    }
}

TEST(BlockStates, WorkInThreadsInFilesAndInCopies) {
    TemporaryFolder folder;
    std::filesystem::create_directories(folder.path("offload"));
    const std::string offload = folder.path("offload");
    for (const auto &block : kinds) {
        Case test{.ranks = 3, .block = block};
        const std::vector<float> one = train_case({.block = block});
        test.options.update_threads = 3;
        EXPECT_EQ(train_case(test), one);
        test.options.partner_copy = 1;
        EXPECT_EQ(train_case(test), one);
        test.options.offload_folder = offload.c_str();
        EXPECT_EQ(train_case(test), one);
    }
}

TEST(BlockStates, AreLoadedAtAnyNumberOfRanks) {
    for (const auto &block : kinds) {
        TemporaryFolder folder;
        const std::vector<float> whole = train_case({.ranks = 3, .block = block}, folder.path("c"));
        for (const int ranks : {1, 2, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = described_for({.block = block});
                Engine engine(described.spec, comm);
                engine.load(folder.path("c"));
                micro_batch(engine, described.ids, {}, 1, comm.rank(), comm.ranks(), true);
                engine.step();
                EXPECT_EQ(read_all(engine, described.ids), whole);
            });
    }
}

TEST(BlockStates, OfOtherBlocksAreNotLoaded) {
    TemporaryFolder folder;
    train_case({.ranks = 2, .block = 4096}, folder.path("c"));
    run_ranks(2, [&](Communicator &comm) {
        // The number of blocks of most parameters is the same.
        const Described described = described_for({.block = 4097});
        Engine engine(described.spec, comm);
        EXPECT_NE(sentence_of([&] {
                      engine.load(folder.path("c"));
                  }).find("role \"state.mean_square-per-4096\""),
                  std::string::npos);
    });
}

TEST(BlockStates, OfExpertsHaveTheBitsOfOneRank) {
    const auto train = [](int ranks, int expert_ranks, const std::string &load,
                          const std::string &save) {
        std::vector<std::vector<float>> experts(static_cast<std::size_t>(ranks));
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.expert_ranks = expert_ranks;
        const std::vector<UnitModel> units{
            {"experts", {{.name = "up", .shape = {4, 30, 10}}}, VESCOMM_FSDP_EXPERTS}};
        run_ranks(ranks, [&](Communicator &comm) {
            Described described = describe(units, "zero3", options);
            const vescomm_adamw_settings_t adamw = vescomm_adamw_settings_init();
            described.spec.add_group(all_ids(described), vescomm_optimizer_get_adam8bit(), &adamw);
            Engine engine(described.spec, comm);
            fill(engine);
            if (!load.empty()) engine.load(load);
            const int own = comm.rank() % expert_ranks;
            const std::int64_t first = own * 4 / expert_ranks * 300;
            engine.begin(VESCOMM_FSDP_LAST);
            engine.pre_forward(0);
            engine.post_forward(0);
            engine.pre_backward(0);
            const vescomm_fsdp_view_t view = engine.gradient(0).first;
            for (std::int64_t i = 0; i < view.elements; ++i)
                write(view, i,
                      comm.rank() < expert_ranks
                          ? static_cast<float>(total_gradient(0, first + i, load.empty() ? 0 : 1))
                          : 0.0f);
            engine.post_backward(0);
            engine.finish_backward();
            engine.step();
            if (!save.empty()) engine.save(save).wait(60);
            experts[static_cast<std::size_t>(comm.rank())] = read_all(engine, described.ids);
        });
        std::vector<float> all;
        for (int rank = 0; rank < expert_ranks; ++rank)
            all.insert(all.end(), experts[static_cast<std::size_t>(rank)].begin(),
                       experts[static_cast<std::size_t>(rank)].end());
        return all;
    };
    TemporaryFolder folder;
    const std::vector<float> one = train(1, 1, "", folder.path("one"));
    EXPECT_EQ(train(6, 2, "", folder.path("six")), one);
    EXPECT_EQ(train(4, 4, "", folder.path("four")), one);
    const std::vector<float> further = train(1, 1, folder.path("one"), "");
    for (const char *from : {"one", "six", "four"})
        for (const auto &[ranks, expert_ranks] : {std::pair(3, 1), {4, 2}, {4, 4}})
            EXPECT_EQ(train(ranks, expert_ranks, folder.path(from), ""), further) << from;
}

// 1 + 1 bytes an element, and two scales of 4 bytes for 256 elements.
TEST(BlockStates, OfAdam8bitTakeAQuarterOfThoseOfAdamW) {
    const auto bytes_of = [](const vescomm_optimizer_kind_t *kind) {
        Described described = describe({{"unit", {{.name = "w", .shape = {1024, 1024}}}}});
        const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
        described.spec.add_group(all_ids(described), kind, &settings);
        return described.spec.report(4, 0);
    };
    constexpr std::uint64_t elements = 1024 * 1024 / 4;
    EXPECT_EQ(bytes_of(vescomm_optimizer_get_adamw()).optimizer_bytes, 8 * elements);
    const vescomm_fsdp_report_t report = bytes_of(vescomm_optimizer_get_adam8bit());
    EXPECT_EQ(report.optimizer_bytes, 2 * elements + 8 * elements / 256);
    EXPECT_EQ(report.replicated_bytes, 4 * (10 * elements + 8 * elements / 256));
}

// One step from zero: Adam's update has the size of the learning rate, whatever the gradient.
TEST(BlockStates, OfAdam8bitStayNearAdamW) {
    const auto train = [](const vescomm_optimizer_kind_t *kind) {
        std::vector<float> seen;
        run_ranks(3, [&](Communicator &comm) {
            Described described = describe(odd_model());
            vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
            settings.learning_rate = 0.01;
            described.spec.add_group(all_ids(described), kind, &settings);
            const Outcome outcome = fsdp::testing::train(comm, described, {.steps = 5});
            if (comm.rank() == 0) seen = outcome.parameters;
        });
        return seen;
    };
    const std::vector<float> exact = train(vescomm_optimizer_get_adamw());
    const std::vector<float> coded = train(vescomm_optimizer_get_adam8bit());
    ASSERT_EQ(exact.size(), coded.size());
    double squares = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
        squares += std::pow(static_cast<double>(exact[i]) - coded[i], 2);
    EXPECT_NE(exact, coded);
    EXPECT_LT(std::sqrt(squares / static_cast<double>(exact.size())), 0.005);
}

TEST(BlockStates, NeedBlocks) {
    Described described = describe(odd_model());
    Settings settings;
    EXPECT_EQ(
        sentence_of([&] { described.spec.add_group({described.ids[1]}, block_rms(), &settings); }),
        "vescomm_fsdp_add_group: state \"mean square\" of \"block rms\" has an element for each "
        "block, and block_elements is 0; set it to the elements of a block, or to -1 for whole "
        "matrices");
}

TEST(BlockStates, AreShardsOfAUnit) {
    run_ranks(3, [](Communicator &comm) {
        const Described described = described_for({});
        Engine engine(described.spec, comm);
        for (std::size_t unit = 0; unit + 1 < described.ids.size(); ++unit) {
            std::int64_t blocks = 0;
            for (const vescomm_optimizer_piece_t &piece : engine.pieces(unit)) {
                EXPECT_EQ(piece.block, blocks);
                for (std::int64_t element = piece.first; element < piece.first + piece.elements;
                     ++element)
                    if (element % (piece.rows * piece.columns) % 256 == 0) ++blocks;
            }
            EXPECT_EQ(engine.shard(unit, VESCOMM_FSDP_STATE, 2).elements, blocks);
            EXPECT_EQ(engine.shard(unit, VESCOMM_FSDP_STATE, 2).type, VESCOMM_F32);
            EXPECT_EQ(engine.shard(unit, VESCOMM_FSDP_STATE, 0).type, VESCOMM_U8);
        }
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
