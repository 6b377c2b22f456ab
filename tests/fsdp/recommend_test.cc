// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Memory by phase, and vescomm_fsdp_recommend(), through the public interface.
#include <algorithm>
#include <array>

#include "fsdp/node_bytes.h"
#include "fsdp/refused.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_report_t report_of(const char *preset, const vescomm_fsdp_spec_options_t &options,
                                int ranks, int micro_batches) {
    const vescomm_fsdp_report_t report =
        describe(odd_model(), preset, options).spec.report(ranks, 0, micro_batches);
    EXPECT_LE(std::max({report.forward_bytes, report.backward_bytes, report.step_bytes}),
              report.peak_bytes);
    return report;
}

TEST(Phases, UseSlotsGradientsAndScratch) {
    const vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    for (const int ranks : {1, 2, 3}) {
        const auto once = report_of("zero3", options, ranks, 1);
        EXPECT_EQ(once.forward_bytes, once.master_bytes + once.optimizer_bytes + once.slot_bytes);
        EXPECT_EQ(once.backward_bytes, once.peak_bytes);
        // Both slots are filled for the next step.
        EXPECT_EQ(once.step_bytes, once.persistent_bytes + once.slot_bytes);

        const auto twice = report_of("zero3", options, ranks, 2);
        EXPECT_GT(twice.scratch_bytes, 0);
        EXPECT_EQ(twice.forward_bytes, twice.persistent_bytes + twice.slot_bytes);
        EXPECT_EQ(twice.backward_bytes, twice.peak_bytes);
        EXPECT_EQ(twice.step_bytes, once.step_bytes);

        // Whole gradients wait for the last micro-batch.
        const auto whole = report_of("zero1", options, ranks, 2);
        EXPECT_EQ(whole.forward_bytes, whole.master_bytes + whole.optimizer_bytes +
                                           whole.slot_bytes + whole.gradient_slot_bytes);
        EXPECT_EQ(whole.step_bytes, whole.persistent_bytes + whole.slot_bytes);
    }
}

TEST(Phases, GatherNothingInAStepWithoutPrefetch) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.order = VESCOMM_FSDP_EXPLICIT;
    const auto report = report_of("zero3", options, 2, 1);
    EXPECT_EQ(report.step_bytes, report.persistent_bytes);
    options.order = VESCOMM_FSDP_RECORDED;
    EXPECT_EQ(report_of("zero3", options, 2, 1).step_bytes,
              report.persistent_bytes + report.slot_bytes);
}

TEST(Phases, UseCodesAndCopies) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.gather_type = VESCOMM_I8;
    const auto gathered = report_of("zero3", options, 2, 1);
    EXPECT_GT(gathered.code_bytes, 0);
    EXPECT_EQ(gathered.forward_bytes, gathered.master_bytes + gathered.optimizer_bytes +
                                          gathered.slot_bytes + gathered.code_bytes);
    EXPECT_EQ(gathered.step_bytes,
              gathered.persistent_bytes + gathered.slot_bytes + gathered.code_bytes);
    options.gather_type = 0;
    options.reduce_type = VESCOMM_I8;
    const auto summed = report_of("zero3", options, 2, 1);
    EXPECT_GT(summed.code_bytes, 0);
    EXPECT_EQ(summed.forward_bytes,
              summed.master_bytes + summed.optimizer_bytes + summed.slot_bytes);
    EXPECT_EQ(summed.backward_bytes, summed.peak_bytes);
    EXPECT_EQ(summed.step_bytes, summed.persistent_bytes + summed.slot_bytes);

    options = vescomm_fsdp_spec_options_init();
    const auto copies = report_of("hpz:2", options, 4, 1);
    EXPECT_GT(copies.secondary_bytes, 0);
    EXPECT_EQ(copies.step_bytes,
              copies.persistent_bytes + copies.slot_bytes + copies.secondary_bytes);
    EXPECT_EQ(copies.backward_bytes, copies.peak_bytes);

    options.partner_copy = 1;
    const auto with = report_of("zero3", options, 2, 1);
    const auto other = describe(odd_model(), "zero3", options).spec.report(2, 1);
    EXPECT_EQ(with.backward_bytes, with.peak_bytes - other.gradient_bytes);
    EXPECT_EQ(with.step_bytes, with.persistent_bytes + with.slot_bytes + with.partner_bytes);
    options.offload_folder = "/tmp";
    const auto file = report_of("zero3", options, 2, 1);
    EXPECT_EQ(file.step_bytes, with.step_bytes - file.file_bytes);
}

// The engine begins as many gathers in a step as slots are counted for it.
TEST(Phases, CountTheSlotsThatAStepFills) {
    for (const int slots : {1, 2, 4, 6})
        run_ranks(2, [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.slots = slots;
            const Described described = describe(odd_model(), "zero3", options);
            const auto report = described.spec.report(2, comm.rank());
            Engine engine(described.spec, comm);
            fill(engine);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), 2, true);
            engine.step();
            EXPECT_EQ(engine.step_summary().early_gathers, slots);
            EXPECT_EQ(report.step_bytes, report.persistent_bytes + report.slot_bytes);
        });
}

// A rank has the copy of another one, whose shard may be larger than its own.
TEST(Report, MinusOneIsTheRankWithTheLargestPeak) {
    std::vector<UnitModel> model = {{"unit", {}}};
    for (const std::int64_t rows : {1000, 900, 100})
        model[0].parameters.push_back(
            {.name = std::to_string(rows), .shape = {rows, 10}, .block_rows = -1});
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    for (const bool copies : {true, false}) {
        options.partner_copy = copies;
        options.gather_type = copies ? 0 : VESCOMM_I8;
        options.reduce_type = copies ? 0 : VESCOMM_I8;
        for (const char *preset : {"zero1", "zero3"})
            for (const int ranks : {2, 3, 4}) {
                const Described described = describe(model, preset, options);
                std::uint64_t largest = 0;
                for (int rank = 0; rank < ranks; ++rank)
                    largest = std::max(largest, described.spec.report(ranks, rank).peak_bytes);
                const auto report = described.spec.report(ranks);
                EXPECT_EQ(report.peak_bytes, largest) << preset << ranks;
                EXPECT_EQ(report.peak_bytes, described.spec.report(ranks, report.rank).peak_bytes);
                EXPECT_LE(described.spec.recommend(ranks, ranks, largest).peak_bytes, largest);
            }
    }
}

// Gathers are counted until micro-batches repeat.
TEST(Report, AnyNumberOfMicroBatchesTakesNoTime) {
    constexpr std::int32_t many = 2'147'483'647;
    for (const int slots : {1, 2, 3, 4})
        for (const auto order : {VESCOMM_FSDP_EXPLICIT, VESCOMM_FSDP_DECLARED}) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.slots = slots;
            options.order = order;
            const Described described = describe(odd_model(), "zero3", options);
            const auto gathers = [&](std::int32_t micro_batches) {
                return described.spec.report(2, 0, micro_batches).gathers_per_step;
            };
            const std::uint64_t each = gathers(4) - gathers(3);
            EXPECT_GT(each, 0);
            EXPECT_EQ(gathers(many), gathers(4) + each * (many - 4)) << slots << ' ' << order;
        }
}

TEST(Recommend, ReturnsAPresetWithItsReport) {
    Described described = describe(odd_model(), "hsdp:2");
    for (const int ranks : {1, 4, 6})
        for (const char *limit : {"ddp", "zero1", "zero3"}) {
            const std::uint64_t memory = describe(odd_model(), limit).spec.report(ranks).peak_bytes;
            vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
            report.micro_batches = 2;
            report.rank = ranks - 1;
            const std::uint64_t more = memory * 2;
            const auto best = described.spec.recommend(ranks, 2, more, &report);
            EXPECT_LE(best.peak_bytes, more);
            EXPECT_GE(best.fitting, 1);
            EXPECT_LE(best.fitting, best.candidates);
            // The report is that of a specification with the preset.
            Spec with = std::move(describe(odd_model(), best.preset).spec);
            const auto expected = with.report(ranks, ranks - 1, 2, 2);
            EXPECT_EQ(report.rank, ranks - 1);
            EXPECT_EQ(report.peak_bytes, expected.peak_bytes);
            EXPECT_EQ(report.gather_bytes_per_step, expected.gather_bytes_per_step);
            EXPECT_EQ(best.peak_bytes, with.report(ranks, -1, 2, 2).peak_bytes);
        }
    // The axes of the specification are as before.
    EXPECT_EQ(described.spec.report(4).shard_ranks, 2);
}

TEST(Recommend, NamesThePresetThatNeedsLeast) {
    const Described described = describe(odd_model());
    std::uint64_t least = ~std::uint64_t{0};
    std::string preset;
    for (const char *one : {"ddp", "zero1", "zero2", "zero3", "hsdp:2", "hpz:1", "hpz:2"}) {
        const std::uint64_t bytes = describe(odd_model(), one).spec.report(4, -1, 1, 2).peak_bytes;
        if (bytes < least) preset = one;
        least = std::min(least, bytes);
    }
    EXPECT_EQ(described.spec.recommend(4, 2, least).preset, preset);
    const std::string sentence = sentence_of([&] { described.spec.recommend(4, 2, least - 1); });
    for (const std::string &part :
         {std::string("vescomm_fsdp_recommend: "), "in " + std::to_string(least - 1) + " bytes",
          preset + " needs least, " + std::to_string(least) + " bytes",
          std::string("1 bytes more")})
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
}

TEST(Recommend, SkipsPresetsThatTheOptionsExclude) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    constexpr std::uint64_t enough = std::uint64_t{1} << 40;
    const auto all = [&] {
        return describe(odd_model(), "zero3", options).spec.recommend(4, 2, enough);
    };
    EXPECT_EQ(all().candidates, 7);
    options.keep_gathered = 1;
    EXPECT_EQ(all().candidates, 5);  // no hpz
    options = vescomm_fsdp_spec_options_init();
    options.memory = VESCOMM_FSDP_DEVICE;
    EXPECT_EQ(all().candidates, 7);
    options = vescomm_fsdp_spec_options_init();
    options.reduce_type = VESCOMM_I8;
    EXPECT_EQ(all().candidates, 6);  // no ddp
    const Described plain = describe(odd_model());
    EXPECT_NE(sentence_of([&] { plain.spec.recommend(0, 1, enough); }).find("ranks is 0"),
              std::string::npos);
    EXPECT_NE(sentence_of([&] { plain.spec.recommend(4, 0, enough); }).find("node_ranks is 0"),
              std::string::npos);
    vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
    report.rank = 4;
    sentence_of([&] { plain.spec.recommend(4, 2, enough, &report); });
    EXPECT_EQ(vescomm_fsdp_recommend(plain.spec.get(), 4, 2, enough, nullptr, nullptr),
              VESCOMM_ERROR_INVALID_ARGUMENT);
}

// One matrix in each unit, large enough that announcements are less than 2 percent.
constexpr int units = 4;
constexpr std::int64_t rows = 256, columns = 512;

std::vector<UnitModel> plain_model() {
    std::vector<UnitModel> model;
    for (int i = 0; i < units; ++i)
        model.push_back({"block." + std::to_string(i), {{.name = "w", .shape = {rows, columns}}}});
    return model;
}

std::uint64_t bytes_sent(vescomm_comm_t *comm) {
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    check(vescomm_comm_get_counters(comm, &counters));
    return counters.bytes_sent;
}

// On emulated nodes a step sends what is predicted. All transfers of these presets are on the
// communicator that the engine returns. Without prefetch none of them goes on after the step.
TEST(Recommend, CountsWhatNodesSend) {
    constexpr int ranks = 4, node_ranks = 2;
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.order = VESCOMM_FSDP_EXPLICIT;
    for (const char *preset : {"zero3", "zero2", "zero1", "ddp"}) {
        std::array<std::uint64_t, ranks> sent{};
        const auto measure = [&](Communicator &comm) {
            const Described described = describe(plain_model(), preset, options);
            Engine engine(described.spec, comm);
            fill(engine);
            const auto step = [&](int number) {
                micro_batch(engine, described.ids, {}, number, comm.rank(), ranks, true);
                engine.step();
                comm.barrier();
            };
            step(0);
            const std::uint64_t before = bytes_sent(engine.comm());
            step(1);
            sent[comm.rank()] = bytes_sent(engine.comm()) - before;
        };
        run_ranks(ranks, measure, {0, 0, 1, 1});
        std::uint64_t measured = 0;
        for (const std::uint64_t bytes : sent) measured += bytes;
        const std::uint64_t predicted =
            node_bytes_of(preset, options, ranks, node_ranks, units, rows, columns);
        EXPECT_GE(measured, predicted) << preset;
        EXPECT_LE(measured, predicted + predicted / 50) << preset;
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
