// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Trainers that use several streams, and ranks whose devices are behind.
#include <atomic>
#include <cmath>
#include <thread>

#include "fsdp/device/training.h"

namespace vescomm::fsdp::testing {
namespace {

std::vector<UnitModel> small_model() {
    return {{"a", {{.name = "w", .shape = {9}}}}, {"b", {{.name = "w", .shape = {9}}}}};
}

vescomm_fsdp_spec_options_t with_one_slot() {
    vescomm_fsdp_spec_options_t options = on_device();
    options.slots = options.gradient_slots = 1;
    return options;
}

struct OtherStream {
    OtherStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 1), 0); }
    ~OtherStream() { cudaStreamDestroy(stream); }
    gpu_double::cuda::Stream stream = nullptr;
};

// The next unit in the slot waits for the uses on both.
TEST(DeviceStreams, MayUseAUnitTogether) {
    run_ranks(1, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const OtherStream other;
        const Described described = describe(small_model(), "zero3", with_one_slot());
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < 3; ++step) {
            engine.begin(VESCOMM_FSDP_EVAL);
            for (const auto stream : {device.stream, other.stream}) {
                engine.pre_forward(0, stream);
                read_on_device(engine, described.ids[0], stream);
            }
            for (const auto stream : {device.stream, other.stream}) engine.post_forward(0, stream);
            engine.pre_forward(1, other.stream);
            read_on_device(engine, described.ids[1], other.stream);
            engine.post_forward(1, other.stream);
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// CUDA may give a new stream the handle of one that was destroyed, so that a handle does not say
// whether the stream waits for a gather.
TEST(DeviceStreams, WaitForGathersInEachEvent) {
    run_ranks(1, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.unshard(0, device.stream);
        for (int i = 0; i < 3; ++i) {
            const int before = gpu_double::calls_of("cudaStreamWaitEvent");
            engine.pre_forward(0, device.stream);
            EXPECT_GT(gpu_double::calls_of("cudaStreamWaitEvent"), before);
            read_on_device(engine, described.ids[0], device.stream);
            engine.post_forward(0, device.stream);
        }
        engine.reshard(0, device.stream);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// A gradient that another stream pushes waits for the earlier use of its slot, and its sum for it.
TEST(DeviceStreams, MayPushGradientsBesideTheEvents) {
    run_ranks(2, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const OtherStream other;
        const Described described = describe(small_model(), "zero3", with_one_slot());
        Engine engine(described.spec, comm);
        fill(engine);
        const float *ones = device.upload(std::vector<float>(9, 1));
        for (int step = 0; step < 3; ++step) {
            engine.begin(VESCOMM_FSDP_LAST);
            for (std::uint64_t unit = 0; unit < 2; ++unit) {
                engine.pre_forward(unit, device.stream);
                engine.post_forward(unit, device.stream);
            }
            for (std::uint64_t unit = 2; unit-- > 0;) {
                engine.pre_backward(unit, device.stream);
                for (const auto stream : {device.stream, other.stream, device.stream})
                    engine.push_gradient(described.ids[unit][0], ones, VESCOMM_F32, stream);
                engine.push_gradient(described.ids[unit][0], ones, VESCOMM_F32, other.stream);
                engine.post_backward(unit, device.stream);
            }
            engine.finish_backward(device.stream);
            // 4 pushes of 2 ranks, to 18 elements.
            EXPECT_EQ(engine.step(vescomm_fsdp_step_init(), device.stream).norm,
                      std::sqrt(64.0 * 18));
        }
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Each backward pass of a unit writes its gradients on a stream of its own, without an order of the
// trainer. The events have it.
TEST(DeviceStreams, MayWriteGradientsInTurn) {
    const auto add_ones = [](Engine &engine, std::uint64_t id, gpu_double::cuda::Stream stream) {
        const auto [view, mode] = engine.gradient(id);
        EXPECT_EQ(gpu_double::launch(stream, "backward", {{view.data, bytes_of(view), true}},
                                     [view = view, mode = mode] {
                                         const vescomm_fsdp_view_t at = host_view(view);
                                         for (std::int64_t i = 0; i < at.elements; ++i)
                                             write(at, i,
                                                   mode == VESCOMM_FSDP_ADD ? read(at, i) + 1 : 1);
                                     }),
                  0);
    };
    for (const bool keeps : {false, true})
        run_ranks(2, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const OtherStream other;
            vescomm_fsdp_spec_options_t options = on_device();
            options.keep_gradients = keeps ? 1 : 0;
            const Described described = describe(small_model(), "zero3", options);
            Engine engine(described.spec, comm);
            fill(engine);
            // Uses of unit 0 in one micro-batch, or in several.
            for (int step = 0; step < 2; ++step) {
                for (int micro = 0; micro < 2; ++micro) {
                    engine.begin(micro == 1 ? VESCOMM_FSDP_LAST : 0);
                    for (const std::uint64_t unit : {0, 0, 1}) {
                        engine.pre_forward(unit, device.stream);
                        engine.post_forward(unit, device.stream);
                    }
                    auto stream = other.stream;
                    for (const std::uint64_t unit : {1, 0, 0}) {
                        stream = stream == other.stream ? device.stream : other.stream;
                        engine.pre_backward(unit, stream);
                        add_ones(engine, described.ids[unit][0], stream);
                        engine.post_backward(unit, stream);
                    }
                    engine.finish_backward(micro == 0 ? device.stream : other.stream);
                }
                // 2 ranks and 2 micro-batches: 4 in each of 9 elements, and 8.
                EXPECT_EQ(engine.step(vescomm_fsdp_step_init(), device.stream).norm,
                          std::sqrt(9 * (16.0 + 64.0)));
            }
        });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// The device of rank 1 does not complete its part of the gradients. No rank makes the step.
TEST(DeviceReplicas, MakeAStepTogether) {
    std::atomic<bool> behind{false};
    const auto body = [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "ddp", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        micro_batch_on_device(engine, described.ids, {}, 1, comm.rank(), 2, true, device);
        if (comm.rank() == 1) {
            behind = true;
            EXPECT_EQ(gpu_double::launch(device.stream, "work that takes long", {},
                                         [&] { behind.wait(true); }),
                      0);
        }
        EXPECT_THROW(engine.step(vescomm_fsdp_step_init(), device.stream), Error);
        if (comm.rank() == 1) {
            behind = false;
            behind.notify_all();
        }
        engine.reset();
        EXPECT_EQ(engine.counters().steps, 1);
        step_on_device(engine, comm, described, {}, 1, device);
        EXPECT_EQ(
            read_all_on_device(engine, described.ids, device),
            train_on(1, small_model(), "zero3", vescomm_fsdp_spec_options_init(), {.steps = 2})
                .parameters);
    };
    run_ranks(2, body, {}, 3);
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
