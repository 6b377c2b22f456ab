// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The report of an engine on device memory counts what the engine allocates, on each rank.
#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/training.h"
#include "fsdp/experts.h"

namespace vescomm::fsdp::testing {
namespace {

void expect_as_allocated(int ranks, const std::string &preset,
                         vescomm_fsdp_spec_options_t options) {
    options = on_device(options);
    run_ranks(ranks, [&](Communicator &comm) {
        SCOPED_TRACE(preset + " on rank " + std::to_string(comm.rank()) + " of " +
                     std::to_string(ranks));
        gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), preset, options);
        Engine engine(described.spec, comm);
        fill(engine);
        const Training training{.micro_batches = 2};
        step_on_device(engine, comm, described, training, 0, device);
        const vescomm_fsdp_report_t report = described.spec.report(ranks, comm.rank(), 2);
        EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes);
        const std::uint64_t of_host =
            report.partner_bytes + (options.offload_to_host != 0 ? report.persistent_bytes : 0);
        EXPECT_EQ(report.device_bytes, report.peak_bytes - of_host);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceReport, HasWhatIsAllocated) {
    const vescomm_fsdp_spec_options_t plain = vescomm_fsdp_spec_options_init();
    for (const int ranks : {1, 2, 3, 5}) expect_as_allocated(ranks, "zero3", plain);
    for (const char *preset : {"ddp", "zero1", "zero2", "hsdp:2", "hpz:2"})
        for (const int offload : {0, 1}) {
            vescomm_fsdp_spec_options_t options = plain;
            options.offload_to_host = offload;
            expect_as_allocated(4, preset, options);
        }
}

TEST(DeviceReport, HasScratchOfFactors) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    const auto scratch = [&] {
        return describe(odd_model(), "zero3", on_device(options)).spec.report(3, 0).scratch_bytes;
    };
    EXPECT_EQ(scratch(), 0u);
    options.average = 1;
    EXPECT_GT(scratch(), 0u);
    expect_as_allocated(3, "zero3", options);
    options.average = 0;
    options.gradient_type = VESCOMM_F16;
    EXPECT_GT(scratch(), 0u);
    expect_as_allocated(3, "zero3", options);
}

TEST(DeviceReport, HasCodesAndPartnerCopies) {
    for (const char *preset : {"zero3", "hpz:2"})
        for (const int offload : {0, 1}) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.gather_type = VESCOMM_I8;
            options.partner_copy = 1;
            options.offload_to_host = offload;
            options.compute_type = VESCOMM_BF16;
            options.slots = 3;
            expect_as_allocated(4, preset, options);
        }
}

TEST(DeviceReport, HasCodesOfGradients) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.reduce_type = VESCOMM_I8;
    options.gradient_type = VESCOMM_BF16;
    for (const int ranks : {1, 2, 3, 5}) expect_as_allocated(ranks, "zero3", options);
    options.gather_type = VESCOMM_F8E4M3;
    options.offload_to_host = 1;
    for (const char *preset : {"zero2", "hsdp:2", "hpz:2"}) expect_as_allocated(4, preset, options);
    // They are used in backward only.
    const vescomm_fsdp_report_t report =
        describe(odd_model(), "zero3", on_device(options)).spec.report(3, 0);
    options.reduce_type = 0;
    const vescomm_fsdp_report_t without =
        describe(odd_model(), "zero3", on_device(options)).spec.report(3, 0);
    EXPECT_GT(report.code_bytes, without.code_bytes);
    EXPECT_EQ(report.forward_bytes, without.forward_bytes);
    EXPECT_GT(report.backward_bytes, without.backward_bytes);
}

// With masters and states in a file, pinned memory has gradient shards, and parts of masters.
TEST(DeviceReport, HasMastersInFiles) {
    const checkpoint::testing_support::TemporaryFolder folder;
    const std::string path = folder.path("");
    vescomm_fsdp_spec_options_t options = on_device();
    options.offload_to_host = 1;
    options.offload_folder = path.c_str();
    options.slots = 3;
    for (const char *preset : {"zero3", "hsdp:2"})
        for (const int partner_copy : {0, 1})
            run_ranks(4, [&](Communicator &comm) {
                SCOPED_TRACE(std::string(preset) + ", rank " + std::to_string(comm.rank()));
                vescomm_fsdp_spec_options_t own = options;
                own.partner_copy = partner_copy;
                gpu_double::Device device(comm.rank());
                const Described described = describe(odd_model(), preset, own);
                Engine engine(described.spec, comm);
                fill(engine);
                step_on_device(engine, comm, described, {}, 0, device);
                const vescomm_fsdp_report_t report =
                    described.spec.report(comm.ranks(), comm.rank());
                EXPECT_EQ(engine.counters().allocated_bytes, report.peak_bytes);
                EXPECT_GT(report.staged_bytes, 0u);
                EXPECT_GE(report.file_bytes, report.master_bytes + report.optimizer_bytes);
                EXPECT_EQ(report.device_bytes,
                          report.slot_bytes + report.gradient_slot_bytes + report.scratch_bytes);
            });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceReport, HasExperts) {
    for (const vescomm_type_t reduce_type : {0, VESCOMM_I8})
        run_ranks(4, [&](Communicator &comm) {
            const gpu_double::Device device(comm.rank());
            vescomm_fsdp_spec_options_t options = mixture_options(2);
            options.reduce_type = reduce_type;
            const MixtureModel model = mixture("zero3", on_device(options));
            const Engine engine(model.spec, comm);
            EXPECT_EQ(engine.counters().allocated_bytes,
                      model.spec.report(comm.ranks(), comm.rank()).peak_bytes);
        });
}

TEST(DeviceReport, RefusesWhatAnEngineRefuses) {
    vescomm_fsdp_spec_options_t options = on_device();
    options.offload_folder = "/tmp";  // without offload_to_host
    try {
        describe(odd_model(), "zero3", options).spec.report(2);
        ADD_FAILURE() << "not refused";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), VESCOMM_ERROR_UNSUPPORTED) << error.what();
    }
}

TEST(DeviceReport, LimitsMemoryOfTheDevice) {
    vescomm_fsdp_spec_options_t options = on_device();
    options.offload_to_host = 1;
    const Described described = describe(odd_model(), "zero3", options);
    const vescomm_fsdp_report_t report = described.spec.report(2);
    ASSERT_LT(report.device_bytes, report.peak_bytes);
    EXPECT_GE(described.spec.recommend(2, 2, report.device_bytes).fitting, 1);
}

}  // namespace
}  // namespace vescomm::fsdp::testing
