// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Engines in memory of the program's allocator.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/counting_allocator.h"
#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

class Counting : public CountingAllocator {
public:
    // Addresses that are not aligned.
    void shift(std::uint64_t bytes) { shift_ = bytes; }

private:
    void *give(std::uint64_t bytes) override {
        auto *memory =
            static_cast<std::byte *>(std::aligned_alloc(64, (bytes + shift_ + 63) / 64 * 64));
        std::memset(memory, 0xa5, bytes + shift_);
        return memory + shift_;
    }
    void take(void *memory) override { std::free(static_cast<std::byte *>(memory) - shift_); }

    std::uint64_t shift_ = 0;
};

struct Case {
    std::string name, preset = "zero3";
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    bool offload = false;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const char *preset : {"zero3", "zero2", "zero1", "ddp", "hsdp:2", "hpz:2"})
        all.push_back({.name = preset, .preset = preset});
    const auto add = [&](const char *name) -> vescomm_fsdp_spec_options_t & {
        return all.emplace_back(Case{.name = name}).options;
    };
    add("codes").gather_type = VESCOMM_I8;
    add("sums of codes").reduce_type = VESCOMM_I8;
    add("partner copy").partner_copy = 1;
    auto &narrow = add("masters in bf16");
    narrow.master_type = narrow.compute_type = VESCOMM_BF16;
    auto &secondary = add("secondary copies of codes");
    secondary.reshard_ranks = 2;
    secondary.gather_type = VESCOMM_I8;
    add("offload");
    all.back().offload = true;
    return all;
}

TEST(Allocator, GivesAllMemoryOfARankAndGetsItBack) {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder.path("offload"));
    const std::string offload = folder.path("offload");
    const Training training{.steps = 2, .micro_batches = 2, .max_norm = 30};
    for (Case &each : cases()) {
        SCOPED_TRACE(each.name);
        if (each.offload) each.options.offload_folder = offload.c_str();
        const Outcome plain = train_on(4, mixed_model(), each.preset, each.options, training);
        run_ranks(4, [&](Communicator &comm) {
            Counting counting;
            const vescomm_fsdp_allocator_t allocator = counting.allocator();
            vescomm_fsdp_spec_options_t options = each.options;
            options.allocator = &allocator;
            const Described described = describe(mixed_model(), each.preset, options);
            const auto report = described.spec.report(4, comm.rank());
            {
                const Engine engine(described.spec, comm);
                const std::uint64_t in_memory =
                    each.offload ? 0 : report.master_bytes + report.optimizer_bytes;
                EXPECT_GE(counting.live(), report.gradient_bytes + in_memory);
            }
            EXPECT_EQ(counting.live(), 0u);
            const Outcome outcome = train(comm, described, training);
            EXPECT_EQ(outcome.parameters, plain.parameters);
            EXPECT_EQ(outcome.norms, plain.norms);
            EXPECT_EQ(counting.live(), 0u);
        });
    }
}

TEST(Allocator, GivesShardsToTheByte) {
    for (const int ranks : {1, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            Counting counting;
            const vescomm_fsdp_allocator_t allocator = counting.allocator();
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.allocator = &allocator;
            const Described described = describe(odd_model(), "zero3", options);
            const auto report = described.spec.report(ranks, comm.rank());
            const Engine engine(described.spec, comm);
            EXPECT_EQ(counting.live(),
                      report.master_bytes + report.gradient_bytes + report.optimizer_bytes);
        });
}

// Each call in turn fails on one rank. Some calls are made in a step.
TEST(Allocator, ThatHasNoMoreIsAnErrorOnAllRanks) {
    vescomm_fsdp_spec_options_t base = vescomm_fsdp_spec_options_init();
    base.partner_copy = 1;
    base.gather_type = base.reduce_type = VESCOMM_I8;
    const Training training{.steps = 1, .micro_batches = 2};
    const int call = fail_each_call<Counting>(
        odd_model(), base, 200,
        [&](Communicator &comm, const Described &described) { train(comm, described, training); });
    EXPECT_GT(call, 10);
}

TEST(Allocator, MustBeComplete) {
    Counting counting;
    const auto refusal = [](const vescomm_fsdp_allocator_t &allocator) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.allocator = &allocator;
        return sentence_of([&] { describe(odd_model(), "zero3", options); });
    };
    vescomm_fsdp_allocator_t allocator = counting.allocator();
    allocator.allocate = nullptr;
    EXPECT_NE(refusal(allocator).find("allocate of the allocator is NULL"), std::string::npos);
    allocator = counting.allocator();
    allocator.deallocate = nullptr;
    EXPECT_NE(refusal(allocator).find("deallocate of the allocator is NULL"), std::string::npos);
    allocator = counting.allocator();
    allocator.reserved = 1;
    EXPECT_NE(refusal(allocator).find("reserved of the allocator is 1"), std::string::npos);
    allocator = counting.allocator();
    allocator.struct_size = 0;
    EXPECT_NE(refusal(allocator).find("struct_size of allocator is 0"), std::string::npos);
}

TEST(Allocator, MustReturnAlignedMemory) {
    run_ranks(1, [](Communicator &comm) {
        Counting counting;
        counting.shift(32);
        const vescomm_fsdp_allocator_t allocator = counting.allocator();
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.allocator = &allocator;
        const Described described = describe(odd_model(), "zero3", options);
        EXPECT_NE(sentence_of([&] {
                      const Engine engine(described.spec, comm);
                  }).find("which is not a multiple of 64"),
                  std::string::npos);
        EXPECT_EQ(counting.live(), 0u);
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
