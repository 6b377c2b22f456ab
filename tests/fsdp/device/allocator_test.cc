// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Engines on device memory in memory of the program's allocator.
#include <cstdlib>
#include <string>
#include <vector>

#include "fsdp/counting_allocator.h"
#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

class Counting : public CountingAllocator {
    void *give(std::uint64_t bytes) override {
        void *memory = nullptr;
        EXPECT_EQ(cudaMalloc(&memory, bytes), 0);
        EXPECT_EQ(cudaMemsetAsync(memory, 0xa5, bytes, nullptr), 0);
        EXPECT_EQ(cudaStreamSynchronize(nullptr), 0);
        return memory;
    }
    void take(void *memory) override { EXPECT_EQ(cudaFree(memory), 0); }
};

struct Case {
    std::string name, preset = "zero3";
    vescomm_fsdp_spec_options_t options = on_device();
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const char *preset : {"zero3", "zero1", "ddp", "hsdp:2", "hpz:2"})
        all.push_back({.name = preset, .preset = preset});
    const auto add = [&](const char *name) -> vescomm_fsdp_spec_options_t & {
        return all.emplace_back(Case{.name = name}).options;
    };
    add("codes").gather_type = VESCOMM_I8;
    add("sums of codes").reduce_type = VESCOMM_I8;
    add("partner copy").partner_copy = 1;
    auto &narrow = add("masters in bf16");
    narrow.master_type = narrow.compute_type = VESCOMM_BF16;
    add("offload").offload_to_host = 1;
    add("average").average = 1;
    return all;
}

TEST(DeviceAllocator, GivesMemoryOfTheDeviceAndGetsItBack) {
    const Training training{.steps = 2, .micro_batches = 2, .max_norm = 30};
    for (const Case &each : cases()) {
        SCOPED_TRACE(each.name);
        const Outcome plain =
            train_on_devices(4, mixed_model(), each.preset, each.options, training);
        run_ranks(4, [&](Communicator &comm) {
            Counting counting;
            const vescomm_fsdp_allocator_t allocator = counting.allocator();
            vescomm_fsdp_spec_options_t options = each.options;
            options.allocator = &allocator;
            const Described described = describe(mixed_model(), each.preset, options);
            const Outcome outcome = train_on_device(comm, described, training);
            EXPECT_EQ(outcome.parameters, plain.parameters);
            EXPECT_EQ(outcome.norms, plain.norms);
            EXPECT_GT(counting.calls(), 0);
            EXPECT_EQ(counting.live(), 0u);
        });
        EXPECT_EQ(gpu_double::take_violations(), "");
    }
}

TEST(DeviceAllocator, GivesShardsToTheByte) {
    for (const int ranks : {1, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            const gpu_double::Device device(comm.rank());
            Counting counting;
            const vescomm_fsdp_allocator_t allocator = counting.allocator();
            vescomm_fsdp_spec_options_t options = on_device();
            options.allocator = &allocator;
            const Described described = describe(odd_model(), "zero3", options);
            const auto report = described.spec.report(ranks, comm.rank());
            const Engine engine(described.spec, comm);
            EXPECT_EQ(counting.live(),
                      report.master_bytes + report.gradient_bytes + report.optimizer_bytes);
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Each call in turn fails on one rank.
TEST(DeviceAllocator, ThatHasNoMoreIsAnErrorOnAllRanks) {
    vescomm_fsdp_spec_options_t base = on_device();
    base.average = 1;
    base.gather_type = base.reduce_type = VESCOMM_I8;
    const int call = fail_each_call<Counting>(mixed_model(), base, 100,
                                              [](Communicator &comm, const Described &described) {
                                                  train_on_device(comm, described, {.steps = 1});
                                              });
    EXPECT_GT(call, 3);
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceAllocator, MustReturnMemoryOfTheDevice) {
    run_ranks(1, [](Communicator &comm) {
        const gpu_double::Device device(comm.rank());
        vescomm_fsdp_allocator_t allocator = vescomm_fsdp_allocator_init();
        allocator.allocate = [](void *, std::uint64_t bytes, std::uint64_t alignment) {
            return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
        };
        allocator.deallocate = [](void *, void *memory, std::uint64_t) { std::free(memory); };
        vescomm_fsdp_spec_options_t options = on_device();
        options.allocator = &allocator;
        const Described described = describe(odd_model(), "zero3", options);
        try {
            const Engine engine(described.spec, comm);
            ADD_FAILURE() << "memory of the host was accepted";
        } catch (const Error &error) {
            EXPECT_NE(std::string(error.what()).find("which must be memory of the current device"),
                      std::string::npos)
                << error.what();
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
