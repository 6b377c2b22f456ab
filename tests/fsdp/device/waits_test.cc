// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Waits of the trainer for its stream, while other ranks or NCCL fail.
#include <atomic>
#include <barrier>
#include <thread>

#include "fsdp/device/training.h"
#include "fsdp/device/without_memory.h"

namespace vescomm::fsdp::testing {
namespace {

std::vector<UnitModel> small_model() {
    return {{"a", {{.name = "w", .shape = {9}}}}, {"b", {{.name = "w", .shape = {9}}}}};
}

// Expects that the wait fails, and that no kernel runs afterwards.
void expect_failed_wait(Engine &engine, gpu_double::Device &device, vescomm_status_t status,
                        const std::string &says) {
    try {
        engine.wait_stream(device.stream);
        ADD_FAILURE() << "no failure";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), status) << error.what();
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
    EXPECT_EQ(cudaStreamSynchronize(device.stream), 0);
}

TEST(DeviceWaits, EndWithTheWorkOfTheStream) {
    run_ranks(2, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.pre_forward(0, device.stream);
        std::atomic<bool> read{false};
        EXPECT_EQ(gpu_double::launch(device.stream, "forward", {}, [&] { read = true; }), 0);
        engine.wait_stream(device.stream);
        EXPECT_TRUE(read);
        engine.post_forward(0, device.stream);
        engine.wait_stream(nullptr);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceWaits, RefuseACapturedStream) {
    run_ranks(1, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        CUgraph_st *graph = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(device.stream, 1), 0);
        EXPECT_THROW(engine.wait_stream(device.stream), Error);
        EXPECT_EQ(cudaStreamEndCapture(device.stream, &graph), 0) << "the capture stays valid";
        cudaGraphDestroy(graph);
        gpu_double::cudaSetDevice(5);
        EXPECT_THROW(engine.wait_stream(device.stream), Error);
        gpu_double::cudaSetDevice(comm.rank());
        engine.wait_stream(device.stream);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// A capture of another stream goes on, whatever the engine asks CUDA meanwhile.
TEST(DeviceWaits, KeepCapturesOfOtherStreamsValid) {
    run_ranks(1, [](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        vescomm_fsdp_spec_options_t options = on_device();
        options.offload_to_host = 1;
        const Described described = describe(small_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        gpu_double::cuda::Stream captured = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&captured, 1), 0);
        CUgraph_st *graph = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(captured, 1), 0);
        step_on_device(engine, comm, described, {}, 0, device);
        engine.wait_stream(device.stream);
        EXPECT_EQ(cudaStreamEndCapture(captured, &graph), 0);
        cudaGraphDestroy(graph);
        cudaStreamDestroy(captured);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// The step waits on the host for the device before it sends gradients to the partner.
TEST(DeviceWaits, OfStepsWithPartnersEnd) {
    std::atomic<bool> behind{false};
    const auto body = [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        vescomm_fsdp_spec_options_t options = on_device();
        options.partner_copy = 1;
        const Described described = describe(small_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        step_on_device(engine, comm, described, {}, 0, device);
        micro_batch_on_device(engine, described.ids, {}, 1, comm.rank(), 2, true, device);
        engine.norm();
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
    };
    run_ranks(2, body, {}, 3);
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// NCCL fails on the device of rank `broken` between the forward pass and the backward pass of two
// units. Trains up to the norm, and returns the error.
std::string failure_of_step(Engine &engine, const Described &described, const Communicator &comm,
                            gpu_double::Device &device, std::barrier<> &all, int broken,
                            vescomm::internal::nccl::Result result) {
    engine.begin(VESCOMM_FSDP_LAST);
    for (std::uint64_t unit = 0; unit < 2; ++unit) {
        engine.pre_forward(unit, device.stream);
        engine.post_forward(unit, device.stream);
    }
    engine.wait_stream(device.stream);
    all.arrive_and_wait();
    if (comm.rank() == broken) gpu_double::break_device(broken, result);
    all.arrive_and_wait();
    // The sum of the norm is a call of NCCL, whatever method the units have.
    try {
        for (std::uint64_t unit = 2; unit-- > 0;) {
            engine.pre_backward(unit, device.stream);
            write_on_device(engine, described.ids[unit], 0, comm.rank(), comm.ranks(), false,
                            device);
            engine.post_backward(unit, device.stream);
        }
        engine.finish_backward(device.stream);
        engine.norm();
        ADD_FAILURE() << "no failure";
    } catch (const Error &error) {
        return error.what();
    }
    return "";
}

TEST(DeviceWaits, EndWhenNcclFails) {
    std::barrier all(2);
    run_ranks(2, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "zero3", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        engine.wait_stream(device.stream);
        const std::string why = failure_of_step(engine, described, comm, device, all, 1,
                                                vescomm::internal::nccl::remote_error);
        EXPECT_NE(why.find("failed on rank 1: remote process"), std::string::npos) << why;
        EXPECT_THROW(engine.wait_stream(device.stream), Error);
        EXPECT_EQ(cudaStreamSynchronize(device.stream), 0);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Ranks of a group are not those of the engine.
TEST(DeviceWaits, AFailureInAGroupSaysWhichRanksItHas) {
    std::barrier<> all(4);
    run_ranks(4, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        const Described described = describe(small_model(), "hsdp:2", on_device());
        Engine engine(described.spec, comm);
        fill(engine);
        const std::string why = failure_of_step(engine, described, comm, device, all, 3,
                                                vescomm::internal::nccl::system_error);
        EXPECT_TRUE(why.find("(rank 0 of the shard group is rank 2)") != std::string::npos ||
                    why.find("(rank r of the replicas is rank 1 + 2 * r)") != std::string::npos)
            << why;
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

// Ranks that announce different events do not meet in calls of NCCL, which would hang.
TEST(DeviceWaits, DifferentEventsAreNamed) {
    for (const int late : {0, 1}) {
        std::barrier<> all(2);
        run_ranks(2, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            vescomm_fsdp_spec_options_t options = on_device();
            options.slots = 1;
            const Described described = describe(small_model(), "zero3", options);
            Engine engine(described.spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                engine.begin(VESCOMM_FSDP_EVAL);
                for (std::uint64_t unit = 0; unit < 2; ++unit) {
                    engine.pre_forward(unit, device.stream);
                    engine.post_forward(unit, device.stream);
                }
            }
            engine.wait_stream(device.stream);
            all.arrive_and_wait();
            if (comm.rank() == late) all.arrive_and_wait();
            try {
                engine.begin(VESCOMM_FSDP_EVAL);
                const auto unit = static_cast<std::uint64_t>(comm.rank());
                engine.pre_forward(unit, device.stream);
                if (comm.rank() != late) all.arrive_and_wait();
                engine.wait_stream(device.stream);
                ADD_FAILURE() << "no failure";
            } catch (const Error &error) {
                const std::string why = error.what();
                EXPECT_NE(why.find("ranks announced different events: rank 0 pre_forward of unit "
                                   "\"a\", rank 1 pre_forward of unit \"b\""),
                          std::string::npos)
                    << why;
            }
        });
        gpu_double::take_violations();
    }
}

TEST(DeviceWaits, ACreationWithoutMemoryOnOneRankIsNoMismatch) {
    expect_no_mismatch_without_memory("hsdp:2", small_model(), 100);
}

TEST(DeviceWaits, EndWhenAnotherRankFails) {
    std::barrier all(2);
    run_ranks(2, [&](Communicator &comm) {
        gpu_double::Device device(comm.rank());
        vescomm_fsdp_spec_options_t options = on_device();
        options.slots = options.gradient_slots = 1;
        const Described described = describe(small_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        const auto forward = [&] {
            engine.begin(VESCOMM_FSDP_EVAL);
            for (std::uint64_t unit = 0; unit < 2; ++unit) {
                engine.pre_forward(unit, device.stream);
                read_on_device(engine, described.ids[unit], device.stream);
                engine.post_forward(unit, device.stream);
            }
        };
        forward();  // the first gather waits on the host
        engine.wait_stream(device.stream);
        all.arrive_and_wait();
        if (comm.rank() == 0) forward();
        all.arrive_and_wait();
        if (comm.rank() == 1) vescomm_comm_abort(engine.comm(), "rank 1 gives up");
        else expect_failed_wait(engine, device, VESCOMM_ERROR_ABORTED, "rank 1 gives up");
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
