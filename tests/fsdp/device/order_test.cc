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

TEST(DeviceEngine, MissesNoWait) {
    std::string found;
    run_ranks(1, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        // In each step another wait has no effect. A step has fewer of them.
        for (int step = 0; step < 30; ++step) {
            gpu_double::fail_call("cudaStreamWaitEvent", step, gpu_double::no_effect);
            step_on_device(engine, comm, described, {}, step, device);
            gpu_double::fail_call("", 0, 0);
        }
        found = gpu_double::take_violations();
    });
    gpu_double::take_violations();
    // The reader of a unit, and the work that it must wait for.
    for (const char *sentence : {
             "forward reads .* dependency on ncclAllGather",
             "copy writes .* dependency on forward",
             "copy reads .* dependency on vescomm_gpu_kernel_2_adamw",
             "ncclReduceScatter.* reads .* dependency on backward",
             "backward writes .* dependency on vescomm_gpu_kernel_2_copy",
         })
        EXPECT_TRUE(std::regex_search(found, std::regex(sentence))) << sentence << '\n' << found;
}

}  // namespace
}  // namespace vescomm::fsdp::testing
