// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Engines on device memory whose communicator asks for reproducible sums: kernels that read the
// memory of other ranks add gradients in the order of the ranks, as the host does.
#include <cstdlib>

#include "fsdp/device/training.h"
#include "fsdp/device/without_memory.h"
#include "fsdp/replicated.h"

namespace vescomm::fsdp::testing {
namespace {

class DeviceReproducible : public ::testing::Test {
protected:
    DeviceReproducible() {
        setenv("VESCOMM_REPRODUCIBLE", "yes", 1);
        setenv("GPU_DOUBLE_NCCL", "23203", 1);  // has addresses of other ranks' memory
    }
    ~DeviceReproducible() override {
        unsetenv("VESCOMM_REPRODUCIBLE");
        unsetenv("GPU_DOUBLE_SYMMETRIC");
    }
};

// Their sums depend on the order of the ranks.
std::vector<float> fractions(std::uint64_t id, std::int64_t count, int step, int rank) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; ++i)
        values.push_back(
            1.0f / static_cast<float>(
                       3 + (i * 7 + rank * 31 + step * 11 + static_cast<std::int64_t>(id)) % 97) -
            0.02f);
    if (values.empty()) values.push_back(0);
    return values;
}

// Trains some steps on a rank. push(id, values): gives the engine a gradient.
void train_with_fractions(
    Engine &engine, const Described &described, int rank, void *stream,
    const std::function<void(std::uint64_t, const std::vector<float> &)> &push) {
    for (int step = 0; step < 3; ++step) {
        engine.begin(VESCOMM_FSDP_LAST);
        for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
            engine.pre_forward(unit, stream);
            engine.post_forward(unit, stream);
        }
        for (std::size_t unit = described.ids.size(); unit-- > 0;) {
            engine.pre_backward(unit, stream);
            for (const std::uint64_t id : described.ids[unit])
                push(id, fractions(id, engine.parameter(id).elements, step, rank));
            engine.post_backward(unit, stream);
        }
        engine.finish_backward(stream);
        vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
        arguments.max_norm = 0.5;
        engine.step(arguments, stream);
    }
}

std::vector<float> on_host(int ranks, const vescomm_fsdp_spec_options_t &options,
                           const char *preset, const std::vector<UnitModel> &units = odd_model()) {
    std::vector<float> seen;
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(units, preset, options);
        Engine engine(described.spec, comm);
        fill(engine);
        train_with_fractions(engine, described, comm.rank(), nullptr,
                             [&](std::uint64_t id, const std::vector<float> &values) {
                                 engine.push_gradient(id, values.data(), VESCOMM_F32);
                             });
        const std::vector<float> all = read_all(engine, described.ids);
        if (comm.rank() == 0) seen = all;
    });
    return seen;
}

std::vector<float> on_devices(int ranks, const vescomm_fsdp_spec_options_t &options,
                              const char *preset,
                              const std::vector<UnitModel> &units = odd_model()) {
    std::vector<float> seen;
    run_ranks(ranks, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(units, preset, on_device(options));
        Engine engine(described.spec, comm);
        fill(engine);
        train_with_fractions(engine, described, comm.rank(), device.stream,
                             [&](std::uint64_t id, const std::vector<float> &values) {
                                 engine.push_gradient(id, device.upload(values), VESCOMM_F32,
                                                      device.stream);
                             });
        const std::vector<float> all = read_all_on_device(engine, described.ids, device);
        if (comm.rank() == 0) seen = all;
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
    return seen;
}

TEST_F(DeviceReproducible, SumsHaveTheBitsOfTheHost) {
    for (const int ranks : {2, 3, 5})
        for (const char *preset : {"zero3", "zero1"}) {
            const vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            const std::vector<float> host = on_host(ranks, options, preset);
            EXPECT_TRUE(on_devices(ranks, options, preset) == host) << ranks << " " << preset;
        }
}

// The rank that owns a shard adds the codes of all ranks in their order, whichever way they came.
TEST_F(DeviceReproducible, SumsInEightBitsHaveTheBitsOfTheHost) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.reduce_type = VESCOMM_I8;
    const std::vector<float> host = on_host(3, options, "zero3");
    EXPECT_TRUE(on_devices(3, options, "zero3") == host);
}

TEST_F(DeviceReproducible, SumsInBf16AreTheSameAgain) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.compute_type = VESCOMM_BF16;
    options.average = 1;
    const std::vector<float> first = on_devices(3, options, "zero3");
    EXPECT_TRUE(on_devices(3, options, "zero3") == first);
}

// With masters on the device and on the host, which are summed in parts.
void expect_host_bits(int ranks, const char *preset, const std::vector<UnitModel> &units) {
    SCOPED_TRACE(std::string(preset) + " " + std::to_string(ranks));
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    for (const int average : {0, 1}) {
        options.average = average;
        options.offload_to_host = 0;
        const std::vector<float> host = on_host(ranks, options, preset, units);
        EXPECT_TRUE(on_devices(ranks, options, preset, units) == host) << average;
        options.offload_to_host = 1;
        EXPECT_TRUE(on_devices(ranks, options, preset, units) == host) << average;
    }
}

TEST_F(DeviceReproducible, SumsOfReplicasHaveTheBitsOfTheHost) {
    for (const int ranks : {2, 3, 5}) expect_host_bits(ranks, "ddp", odd_model());
    for (const int ranks : {4, 6}) expect_host_bits(ranks, "hsdp:2", odd_model());
}

TEST_F(DeviceReproducible, SumsOfReplicatedParametersHaveTheBitsOfTheHost) {
    expect_host_bits(3, "zero3", with_replicated());
    expect_host_bits(4, "hpz:2", with_replicated());
    expect_host_bits(4, "hsdp:2", with_replicated());
    expect_host_bits(3, "zero3", all_replicated());
}

// One all_reduce has at most 32 MiB.
TEST_F(DeviceReproducible, LargeShardsAreSummedInParts) {
    const std::vector<UnitModel> units = {{"large", {{.name = "w", .shape = {(9 << 20) + 5}}}}};
    const vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    EXPECT_TRUE(on_devices(2, options, "ddp", units) == on_host(2, options, "ddp", units));
}

// Buffers for these sums are created after all others.
TEST_F(DeviceReproducible, ACreationWithoutMemoryOnOneRankIsNoMismatch) {
    expect_no_mismatch_without_memory("hsdp:2", with_replicated(), 300);
}

// The text of the error that the creation of an engine has on all ranks.
std::string refusal(const char *preset, int ranks = 2) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Communicator &comm) {
        const gpu_double::Device device(comm.rank());
        const Described described = describe(odd_model(), preset, on_device());
        try {
            const Engine engine(described.spec, comm);
        } catch (const Error &error) {
            EXPECT_EQ(error.status(), VESCOMM_ERROR_UNSUPPORTED) << error.what();
            texts[static_cast<std::size_t>(comm.rank())] = error.what();
        }
    });
    for (const std::string &text : texts) EXPECT_NE(text, "");
    return texts[0];
}

TEST_F(DeviceReproducible, RanksThatCannotReadOneAnotherAreRefused) {
    setenv("GPU_DOUBLE_SYMMETRIC", "0", 1);
    EXPECT_NE(refusal("zero3").find("not all ranks can address"), std::string::npos);
    EXPECT_NE(refusal("ddp").find("not all ranks can address"), std::string::npos);
}

}  // namespace
}  // namespace vescomm::fsdp::testing
