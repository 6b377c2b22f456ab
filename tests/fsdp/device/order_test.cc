// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Streams of the engine on device memory: the double finds the waits of streams that are left out,
// so the other tests show that none is missing.
#include <regex>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

std::vector<UnitModel> small_model() {
    std::vector<UnitModel> units;
    for (const char *name : {"a", "b", "c"}) units.push_back({name, {{.name = "w", .shape = {9}}}});
    return units;
}

// Trains steps, in each of which another wait of rank 0 has no effect, and returns the violations.
// A step has at most `waits` of them. With several ranks another stream reads all units, too.
std::string violations_without_a_wait(int ranks, int waits, const std::vector<UnitModel> &units,
                                      const vescomm_fsdp_spec_options_t &options) {
    std::string found;
    run_ranks(ranks, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        gpu_double::cuda::Stream other = nullptr;
        EXPECT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
        const Described described = describe(units, "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < waits; ++step) {
            if (comm.rank() == 0)
                gpu_double::fail_call("cudaStreamWaitEvent", step, gpu_double::no_effect, true);
            micro_batch_on_device(engine, described.ids, {}, step, comm.rank(), ranks, true,
                                  device);
            for (std::size_t unit = 0; ranks > 1 && unit < units.size(); ++unit) {
                engine.unshard(unit, other);
                read_on_device(engine, described.ids[unit], other);
                engine.reshard(unit, other);
            }
            engine.step(vescomm_fsdp_step_init(), device.stream);
            if (comm.rank() == 0) gpu_double::fail_call("", 0, 0);
        }
        EXPECT_EQ(cudaStreamSynchronize(other), 0);
        EXPECT_EQ(cudaStreamDestroy(other), 0);
        comm.barrier();
        if (comm.rank() == 0) found = gpu_double::take_violations();
    });
    gpu_double::take_violations();
    return found;
}

void expect_sentences(const std::string &found, std::initializer_list<const char *> sentences) {
    for (const char *sentence : sentences)
        EXPECT_TRUE(std::regex_search(found, std::regex(sentence))) << sentence << '\n' << found;
}

TEST(DeviceEngine, MissesNoWait) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    // The reader of a unit, and the work that it must wait for.
    expect_sentences(violations_without_a_wait(1, 40, small_model(), on_device()),
                     {
                         "forward reads .* dependency on ncclAllGather",
                         "copy writes .* dependency on forward",
                         "copy reads .* dependency on vescomm_gpu_kernel_2_adamw",
                         "ncclReduceScatter.* reads .* dependency on backward",
                         "backward writes .* dependency on vescomm_gpu_kernel_2_copy",
                     });
}

TEST(DeviceEngine, MissesNoWaitForGradientsInEightBits) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    vescomm_fsdp_spec_options_t options = on_device();
    options.reduce_type = VESCOMM_I8;
    options.keep_gathered = 1;  // a gather in backward would wait for the exchange
    expect_sentences(violations_without_a_wait(1, 40, small_model(), options),
                     {
                         "quantise reads .* dependency on backward",
                         "backward writes .* dependency on vescomm_gpu_kernel_2_quantise",
                     });
}

// Two units whose parameters are replicated, but for one.
TEST(DeviceEngine, MissesNoWaitForReplicatedParameters) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    std::vector<UnitModel> units = small_model();
    for (UnitModel &unit : units) unit.parameters[0].flags = VESCOMM_FSDP_REPLICATED;
    units[0].parameters.push_back({.name = "sharded", .shape = {7}});
    expect_sentences(violations_without_a_wait(2, 80, units, on_device()),
                     {
                         "forward reads .* dependency on vescomm_gpu_kernel_2_adamw",
                         "vescomm_gpu_kernel_2_adamw.* writes .* dependency on forward",
                         "copy.* reads .* dependency on backward",
                         "backward writes .* dependency on vescomm_gpu_kernel_2_copy",
                     });
    vescomm_fsdp_spec_options_t options = on_device();
    options.compute_type = VESCOMM_BF16;
    expect_sentences(violations_without_a_wait(2, 80, units, options),
                     {
                         "forward reads .* dependency on vescomm_gpu_kernel_2_cast",
                         "cast reads .* dependency on vescomm_gpu_kernel_2_adamw",
                     });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
