// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Engines on device memory in memory of the program's allocator.
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

// Counts the memory of the device that it gives, whose contents are not zero.
class Counting {
public:
    vescomm_fsdp_allocator_t allocator() {
        vescomm_fsdp_allocator_t made = vescomm_fsdp_allocator_init();
        made.context = this;
        made.allocate = [](void *context, std::uint64_t bytes, std::uint64_t) {
            return static_cast<Counting *>(context)->allocate(bytes);
        };
        made.deallocate = [](void *context, void *memory, std::uint64_t bytes) {
            static_cast<Counting *>(context)->deallocate(memory, bytes);
        };
        return made;
    }
    std::uint64_t live() const { return live_; }
    int calls() const { return calls_; }
    // The call of this number, from 1, returns NULL. 0: none.
    void fail_at(int call) { failing_ = call; }

private:
    void *allocate(std::uint64_t bytes) {
        if (++calls_ == failing_) return nullptr;
        void *memory = nullptr;
        EXPECT_EQ(cudaMalloc(&memory, bytes), 0);
        EXPECT_EQ(cudaMemsetAsync(memory, 0xa5, bytes, nullptr), 0);
        EXPECT_EQ(cudaStreamSynchronize(nullptr), 0);
        sizes_[memory] = bytes;
        live_ += bytes;
        return memory;
    }
    // The double reports work that is not complete. cudaFree() would wait for it.
    void deallocate(void *memory, std::uint64_t bytes) {
        const auto found = sizes_.find(memory);
        ASSERT_NE(found, sizes_.end());
        EXPECT_EQ(found->second, bytes);
        sizes_.erase(found);
        live_ -= bytes;
        EXPECT_EQ(cudaFree(memory), 0);
    }

    std::map<void *, std::uint64_t> sizes_;
    std::uint64_t live_ = 0;
    int calls_ = 0, failing_ = 0;
};

std::vector<UnitModel> mixed_model() {
    std::vector<UnitModel> units = odd_model();
    units[1].parameters[1].flags = VESCOMM_FSDP_REPLICATED;
    return units;
}

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
    bool failed = true;
    int call = 0;
    while (failed) {
        ASSERT_LT(++call, 100);
        failed = false;
        run_ranks(2, [&](Communicator &comm) {
            Counting counting;
            const vescomm_fsdp_allocator_t allocator = counting.allocator();
            vescomm_fsdp_spec_options_t options = base;
            options.allocator = &allocator;
            if (comm.rank() == 1) counting.fail_at(call);
            const Described described = describe(mixed_model(), "zero3", options);
            try {
                train_on_device(comm, described, {.steps = 1});
                EXPECT_FALSE(comm.rank() == 1 && counting.calls() >= call);
            } catch (const Error &error) {
                EXPECT_NE(error.status(), VESCOMM_ERROR_TIMEOUT) << error.what();
                if (comm.rank() == 1) {
                    EXPECT_EQ(error.status(), VESCOMM_ERROR_OUT_OF_MEMORY) << error.what();
                    failed = true;
                }
            }
            EXPECT_EQ(counting.live(), 0u);
        });
    }
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
