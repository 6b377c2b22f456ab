// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Training on device memory whose rank 1 is killed in the second step, in the middle of backward.
// The others recover, and end with the parameters of a training without failure. Ranks are
// processes, on GPUs or on the test double:
//
//     vescomm-run -n 3 --min-ranks 2 killed_rank [offload|adam8bit|sgd]
#include <csignal>
#include <cstdio>

#include "fsdp/training.h"
#include "gpu/loaded_cuda.h"
#include "vescomm/gpu.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::testing {
namespace {

using internal::testing_support::loaded_cuda;
using internal::testing_support::LoadedDevice;

constexpr int victim = 1, steps = 4, step_of_death = 1;

// The streams of a trainer. Those of the engine wait for other ranks, so `copies` has its own.
struct Streams {
    explicit Streams(int number) : work(number), copies(number) {}
    LoadedDevice work, copies;
};

void push_gradients(Engine &engine, const std::vector<std::uint64_t> &ids, int step, int rank,
                    int ranks, Streams &streams) {
    for (const std::uint64_t id : ids) {
        std::vector<float> terms;
        for (std::int64_t i = 0; i < engine.parameter(id).elements; ++i)
            terms.push_back(
                static_cast<float>(gradient_term(total_gradient(id, i, step), rank, ranks)));
        engine.push_gradient(id, streams.copies.upload(terms), VESCOMM_F32, streams.work.stream);
    }
}

void train_step(Engine &engine, const Described &described, int step, Communicator &comm, bool dies,
                Streams &streams) {
    engine.begin(VESCOMM_FSDP_LAST);
    for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
        engine.pre_forward(unit, streams.work.stream);
        engine.post_forward(unit, streams.work.stream);
    }
    for (std::size_t unit = described.ids.size(); unit-- > 0;) {
        engine.pre_backward(unit, streams.work.stream);
        push_gradients(engine, described.ids[unit], step, comm.rank(), comm.ranks(), streams);
        if (dies && unit == described.ids.size() / 2) std::raise(SIGKILL);
        engine.post_backward(unit, streams.work.stream);
    }
    engine.finish_backward(streams.work.stream);
    engine.step(vescomm_fsdp_step_init(), streams.work.stream);
}

std::vector<float> read_all_parameters(Engine &engine, const Described &described,
                                       Streams &streams) {
    std::vector<float> seen;
    engine.begin(VESCOMM_FSDP_EVAL);
    for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
        engine.pre_forward(unit, streams.work.stream);
        engine.wait_stream(streams.work.stream);
        for (const std::uint64_t id : described.ids[unit]) {
            const vescomm_fsdp_view_t view = engine.parameter(id);
            if (view.elements == 0) continue;
            const std::vector<float> values = streams.copies.read(
                static_cast<const float *>(view.data), static_cast<std::size_t>(view.elements));
            seen.insert(seen.end(), values.begin(), values.end());
        }
        engine.post_forward(unit, streams.work.stream);
    }
    return seen;
}

// `what`: offload, or the optimizer instead of AdamW.
Described described_model(const std::string &what, vescomm_fsdp_spec_options_t options) {
    options.partner_copy = options.memory == VESCOMM_FSDP_DEVICE ? 1 : 0;
    options.offload_to_host = options.partner_copy != 0 && what == "offload" ? 1 : 0;
    Described described = describe(odd_model(), "zero3", options);
    const vescomm_adamw_settings_t adamw = vescomm_adamw_settings_init();
    vescomm_sgd_settings_t sgd = vescomm_sgd_settings_init();
    sgd.momentum = 0.9;
    if (what == "adam8bit")
        described.spec.add_group(all_ids(described), vescomm_optimizer_get_adam8bit(), &adamw);
    if (what == "sgd")
        described.spec.add_group(all_ids(described), vescomm_optimizer_get_sgd(), &sgd);
    return described;
}

std::vector<float> trained_alone(const std::string &what) {
    std::vector<float> seen;
    run_ranks(1, [&](Communicator &comm) {
        const Described described = described_model(what, vescomm_fsdp_spec_options_init());
        seen = train(comm, described, {.steps = steps}).parameters;
    });
    return seen;
}

// Trains until a step fails. Returns its number, or that of all steps.
int train_until_failure(Engine &engine, const Described &described, Communicator &comm,
                        Streams &streams) {
    int step = 0;
    try {
        for (; step < steps; ++step)
            train_step(engine, described, step, comm,
                       comm.rank() == victim && step == step_of_death, streams);
    } catch (const Error &error) {
        std::printf("step %d: %s\n", step, error.what());
        EXPECT_EQ(error.status(), VESCOMM_ERROR_PEER_FAILED);
        EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos);
    }
    return step;
}

bool survives(const std::string &what) {
    Communicator comm = Communicator::from_environment();
    int devices = 1;
    EXPECT_EQ(loaded_cuda().cudaGetDeviceCount(&devices), 0);
    Streams streams(comm.rank() % devices);
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.memory = VESCOMM_FSDP_DEVICE;
    const Described described = described_model(what, options);
    Engine engine(described.spec, comm);
    fill(engine);
    EXPECT_EQ(train_until_failure(engine, described, comm, streams), step_of_death);
    vescomm_comm_t *made = nullptr;
    check(vescomm_comm_shrink(comm.get(), nullptr, 0, &made));
    Communicator survivors(made);
    EXPECT_EQ(survivors.ranks(), comm.ranks() - 1);
    const vescomm_fsdp_recovery_t recovery = engine.recover(survivors);
    EXPECT_EQ(recovery.steps, step_of_death);
    EXPECT_EQ(recovery.lost_steps, 0);
    for (int step = step_of_death; step < steps; ++step)
        train_step(engine, described, step, survivors, false, streams);
    EXPECT_TRUE(read_all_parameters(engine, described, streams) == trained_alone(what));
    return !::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
}

}  // namespace
}  // namespace vescomm::fsdp::testing

int main(int argc, char **argv) {
    if (vescomm_gpu_check_support(nullptr) != VESCOMM_OK ||
        vescomm_gpu_check_kernels() != VESCOMM_OK) {
        std::printf("skipped: %s\n", vescomm_get_last_error());
        return 77;
    }
    ::testing::InitGoogleTest(&argc, argv);
    try {
        return vescomm::fsdp::testing::survives(argc > 1 ? argv[1] : "") ? 0 : 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "killed_rank: %s\n", error.what());
        return 1;
    }
}
