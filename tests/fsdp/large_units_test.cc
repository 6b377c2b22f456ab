// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The option large_unit_bytes: units that are much larger than the others. And units with
// VESCOMM_FSDP_KEEP_GATHERED, which have a slot alone.
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

constexpr std::int64_t block_bytes = 4 * 24 * 16;

// An embedding and a head ten times as large as each block.
std::vector<UnitModel> model_with_embedding() {
    std::vector<UnitModel> units;
    units.push_back({"embedding", {{.name = "token", .shape = {240, 16}}}});
    for (int i = 0; i < 5; ++i)
        units.push_back({"block." + std::to_string(i), {{.name = "w", .shape = {24, 16}}}});
    units.push_back({"head", {{.name = "out", .shape = {240, 16}}}});
    return units;
}

vescomm_fsdp_spec_options_t options(std::int64_t large_unit_bytes, int slots = 2) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.large_unit_bytes = large_unit_bytes;
    options.slots = options.gradient_slots = slots;
    return options;
}

vescomm_fsdp_report_t report_of(const std::vector<UnitModel> &units,
                                const vescomm_fsdp_spec_options_t &options, int ranks = 4) {
    return describe(units, "zero3", options).spec.report(ranks);
}

// Slots for two blocks and a large unit instead of two for large units.
TEST(LargeUnits, DoNotDecideTheSizeOfOtherSlots) {
    const auto units = model_with_embedding();
    const vescomm_fsdp_report_t uniform = report_of(units, options(0));
    EXPECT_EQ(uniform.slot_bytes, 2u * 10 * block_bytes);
    EXPECT_EQ(uniform.gradient_slot_bytes, 2u * 10 * block_bytes);
    const vescomm_fsdp_report_t split = report_of(units, options(block_bytes));
    EXPECT_EQ(split.slot_bytes, 12u * block_bytes);
    EXPECT_EQ(split.gradient_slot_bytes, 12u * block_bytes);
    EXPECT_EQ(split.peak_bytes, uniform.peak_bytes - 16 * block_bytes);
    // Three slots keep one more block gathered until its backward pass.
    EXPECT_LT(split.gather_bytes_per_step, uniform.gather_bytes_per_step);
    EXPECT_EQ(split.reduce_bytes_per_step, uniform.reduce_bytes_per_step);
    // No unit is large, or all are: then they share one slot.
    EXPECT_EQ(report_of(units, options(10 * block_bytes)).slot_bytes, uniform.slot_bytes);
    EXPECT_EQ(report_of(units, options(1)).slot_bytes, 10u * block_bytes);
    // A slot for each unit: as without the option.
    EXPECT_EQ(report_of(units, options(block_bytes, 7)).slot_bytes, 25u * block_bytes);
    EXPECT_EQ(report_of(units, options(block_bytes, 6)).slot_bytes, 15u * block_bytes);
}

// FSDP2 has 10 bytes for each parameter of a unit in backward: parameters of two units and
// gradients of 2 bytes, and gradients of 4 bytes that are summed. Here gradients of 2 bytes are
// summed in f32.
TEST(Slots, TakeSixBytesForAParameterInBackward) {
    std::vector<UnitModel> units;
    for (int i = 0; i < 4; ++i)
        units.push_back({"block." + std::to_string(i), {{.name = "w", .shape = {240, 16}}}});
    constexpr std::uint64_t parameters = 240 * 16;
    struct Case {
        int slots, gradient_slots;
        std::uint64_t bytes;
    };
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16})
        for (const Case &each : {Case{0, 0, 8}, Case{2, 1, 6}, Case{1, 1, 4}}) {
            vescomm_fsdp_spec_options_t mixed = options(0, each.slots);
            mixed.compute_type = type;
            mixed.gradient_slots = each.gradient_slots;
            const vescomm_fsdp_report_t report = report_of(units, mixed);
            EXPECT_EQ(report.backward_bytes - report.persistent_bytes, each.bytes * parameters);
            // Four ranks, each of which keeps its shard of all units.
            EXPECT_EQ(report.gradient_bytes, 4 * units.size() * parameters / 4);
        }
}

TEST(LargeUnits, HaveTheSameBits) {
    const auto units = model_with_embedding();
    const Training training{.micro_batches = 2, .recompute = true};
    const Outcome alone = train_on(1, units, "zero3", options(0), {});
    for (const int ranks : {1, 2, 3, 5})
        for (const int slots : {1, 2, 3})
            for (const std::int64_t bytes : {block_bytes, std::int64_t{1}})
                EXPECT_EQ(
                    train_on(ranks, units, "zero3", options(bytes, slots), training).parameters,
                    alone.parameters)
                    << ranks << " ranks, " << slots << " slots";
    for (const char *preset : {"zero1", "zero2", "ddp", "hsdp:2", "hpz:2"})
        for (const int order : {0, 1, 2}) {
            vescomm_fsdp_spec_options_t chosen = options(block_bytes);
            chosen.order = order;
            EXPECT_EQ(train_on(4, units, preset, chosen, training).parameters, alone.parameters)
                << preset << ", order " << order;
        }
    EXPECT_EQ(train_on(4, units, "hpz:2", options(block_bytes), training, {0, 0, 1, 1}).parameters,
              alone.parameters);
}

// A single large unit has its slot alone, and stays in it until the step.
TEST(LargeUnits, AreGatheredOnceIfTheyHaveASlotAlone) {
    auto units = model_with_embedding();
    units.pop_back();
    const vescomm_fsdp_report_t uniform = report_of(units, options(0));
    const vescomm_fsdp_report_t split = report_of(units, options(block_bytes));
    EXPECT_LT(split.gathers_per_step, uniform.gathers_per_step);
    EXPECT_EQ(train_on(3, units, "zero3", options(block_bytes), {}).parameters,
              train_on(1, units, "zero3", options(0), {}).parameters);
}

TEST(LargeUnits, AllocateAndSendWhatTheReportSays) {
    for (const char *preset : {"zero3", "zero1", "zero2", "hsdp:2", "hpz:2"})
        for (const int slots : {1, 2, 5})
            for (const vescomm_type_t type : {vescomm_type_t{0}, VESCOMM_I8})
                run_ranks(4, [&](Communicator &comm) {
                    vescomm_fsdp_spec_options_t chosen = options(block_bytes, slots);
                    chosen.compute_type = VESCOMM_BF16;
                    chosen.large_unit_bytes = block_bytes / 2;
                    chosen.gather_type = chosen.reduce_type = type;
                    const Described described = describe(model_with_embedding(), preset, chosen);
                    const vescomm_fsdp_report_t report =
                        described.spec.report(comm.ranks(), comm.rank(), 2);
                    const Outcome outcome = train(comm, described, {.micro_batches = 2});
                    const auto &counters = outcome.counters;
                    EXPECT_EQ(counters.allocated_bytes, report.peak_bytes) << preset << slots;
                    EXPECT_EQ(counters.gathers, report.gathers_per_step) << preset << slots;
                    EXPECT_EQ(counters.gather_bytes, report.gather_bytes_per_step) << preset;
                    EXPECT_EQ(counters.reduce_bytes, report.reduce_bytes_per_step) << preset;
                    EXPECT_EQ(counters.deviations, 0u);
                });
}

// The head uses the matrix of the embedding, so both are open at the same time.
TEST(LargeUnits, MayBeTied) {
    run_ranks(3, [](Communicator &comm) {
        Spec spec(options(block_bytes, 1));
        const auto embedding = spec.add_unit("embedding");
        const auto token = spec.add_parameter(embedding, {.name = "w", .shape = {240, 16}});
        const auto block = spec.add_unit("block");
        spec.add_parameter(block, {.name = "w", .shape = {24, 16}});
        const auto other = spec.add_unit("other");
        spec.add_parameter(other, {.name = "w", .shape = {24, 16}});
        const auto head = spec.add_unit("head");
        spec.add_parameter(head, {.name = "mix", .shape = {200, 16}});
        const auto tied = spec.add_parameter(
            head, {.name = "out", .shape = {240, 16}, .tied_to = std::int64_t(token)});
        // One slot for a block, and two for large units, which have one each.
        EXPECT_EQ(spec.report(3).slot_bytes, 4u * 16 * (24 + 240 + 200));
        Engine engine(spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_EVAL);
        for (const auto unit : {embedding, block, other, head}) {
            engine.pre_forward(unit);
            if (unit == head) {
                const vescomm_fsdp_view_t view = engine.parameter(tied);
                for (std::int64_t i = 0; i < view.elements; ++i)
                    ASSERT_EQ(read(view, i), initial(token, i));
            }
            engine.post_forward(unit);
        }
    });
}

// The embedding holds its gradient slot from the backward pass of the head, which is small, to its
// own. The experts, which are large too, need another one.
TEST(LargeUnits, HaveAGradientSlotBesideATiedOne) {
    for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [](Communicator &comm) {
            Spec spec(options(block_bytes));
            std::vector<std::uint64_t> units;
            const auto add = [&](const char *name, std::int64_t rows) {
                units.push_back(spec.add_unit(name));
                return spec.add_parameter(units.back(), {.name = "w", .shape = {rows, 16}});
            };
            const auto token = add("embedding", 240);
            add("block.0", 24);
            add("experts", 200);
            add("block.1", 24);
            units.push_back(spec.add_unit("head"));
            spec.add_parameter(
                units.back(),
                {.name = "out", .shape = {240, 16}, .tied_to = static_cast<std::int64_t>(token)});
            Engine engine(spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                engine.begin(VESCOMM_FSDP_LAST);
                for (const auto unit : units) {
                    engine.pre_forward(unit);
                    engine.post_forward(unit);
                }
                for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
                    engine.pre_backward(*unit);
                    engine.post_backward(*unit);
                }
                engine.finish_backward();
                engine.step();
            }
        });
}

TEST(LargeUnits, RefuseWhatDoesNotFitWithASentence) {
    run_ranks(2, [](Communicator &comm) {
        const Described described = describe(model_with_embedding(), "zero3", options(block_bytes));
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.pre_forward(0);
        comm.barrier();
        try {
            engine.pre_forward(6);
            ADD_FAILURE() << "two large units are open";
        } catch (const Error &error) {
            const std::string text = error.what();
            EXPECT_NE(text.find("all 1 slots for units of more than large_unit_bytes hold open "
                                "units: \"embedding\"; close one of them first, or set "
                                "large_unit_bytes to 15360 or more"),
                      std::string::npos)
                << text;
        }
        comm.barrier();
        engine.reset();
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.pre_forward(6);
        engine.post_forward(6);
    });
    EXPECT_THROW(Spec(options(-1)), Error);
}

std::vector<UnitModel> model_that_keeps(std::size_t unit) {
    auto units = model_with_embedding();
    units[unit].flags = VESCOMM_FSDP_KEEP_GATHERED;
    return units;
}

TEST(KeptUnits, AreGatheredOnceAndHaveASlotMore) {
    const auto units = model_with_embedding();
    const vescomm_fsdp_report_t without = report_of(units, options(0));
    for (const std::size_t kept : {std::size_t{0}, std::size_t{3}, std::size_t{6}}) {
        const vescomm_fsdp_report_t with = report_of(model_that_keeps(kept), options(0));
        const std::uint64_t bytes = kept == 3 ? block_bytes : 10 * block_bytes;
        EXPECT_EQ(with.slot_bytes, without.slot_bytes + bytes);
        EXPECT_EQ(with.gradient_slot_bytes, without.gradient_slot_bytes);
        // The head was gathered once before, too; now one more block stays in the shared slots.
        EXPECT_EQ(with.gathers_per_step, without.gathers_per_step - 1);
    }
}

TEST(KeptUnits, HaveTheSameBitsAndAllocateWhatTheReportSays) {
    const auto units = model_with_embedding();
    const Outcome alone = train_on(1, units, "zero3", options(0), {});
    for (const char *preset : {"zero3", "zero1", "ddp", "hsdp:2", "hpz:2"})
        for (const std::size_t kept : {std::size_t{0}, std::size_t{3}})
            for (const std::int64_t large : {std::int64_t{0}, block_bytes})
                for (const vescomm_type_t type : {vescomm_type_t{0}, VESCOMM_I8})
                    run_ranks(4, [&](Communicator &comm) {
                        vescomm_fsdp_spec_options_t chosen = options(large);
                        chosen.gather_type = type;
                        const Described described =
                            describe(model_that_keeps(kept), preset, chosen);
                        const vescomm_fsdp_report_t report =
                            described.spec.report(comm.ranks(), comm.rank(), 1);
                        const Outcome outcome = train(comm, described, {});
                        EXPECT_EQ(outcome.counters.allocated_bytes, report.peak_bytes) << preset;
                        EXPECT_EQ(outcome.counters.gathers, report.gathers_per_step) << preset;
                        if (type == 0) {
                            EXPECT_EQ(outcome.parameters, alone.parameters) << preset;
                        }
                    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
