// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Optimizers of the program on device memory. Each has a `step`, and a device_step whose kernel
// runs the same arithmetic on the stream that it gets: the results are those of the host.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/device/refused.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;
using Step = int (*)(void *, const void *, const vescomm_optimizer_run_t *);

// A run that lives as long as a kernel.
struct KeptRun {
    explicit KeptRun(const vescomm_optimizer_run_t &run) : of(run) {
        for (std::size_t i = 0; i < run.piece_count; ++i)
            pieces.push_back(*vescomm_optimizer_piece_at(run.pieces, i));
        for (std::uint32_t i = 0; i < run.states; ++i) states.push_back(run.state[i]);
    }
    // With the addresses at which the host finds the bytes.
    vescomm_optimizer_run_t on_host() {
        vescomm_optimizer_run_t run = of;
        run.pieces = pieces.data();
        run.master = static_cast<float *>(gpu_double::host_view(of.master));
        run.gradient = static_cast<const float *>(gpu_double::host_view(of.gradient));
        views.clear();
        for (void *state : states) views.push_back(gpu_double::host_view(state));
        run.state = views.data();
        return run;
    }

    vescomm_optimizer_run_t of;
    std::vector<vescomm_optimizer_piece_t> pieces;
    std::vector<void *> states, views;
};

// A kernel that calls `step` on the arrays of a run. `state_bytes`: of its state, if it has one.
int launch_step(Step step, const vescomm_optimizer_run_t *run, std::size_t state_bytes,
                void *stream) {
    const auto kept = std::make_shared<KeptRun>(*run);
    const auto bytes = static_cast<std::size_t>(run->elements) * sizeof(float);
    std::vector<gpu_double::Access> accesses = {{run->master, bytes, true},
                                                {run->gradient, bytes, false}};
    if (run->states > 0) accesses.push_back({run->state[0], state_bytes, true});
    return gpu_double::launch(static_cast<gpu_double::cuda::Stream>(stream), "step", accesses,
                              [kept, step] {
                                  const vescomm_optimizer_run_t here = kept->on_host();
                                  step(nullptr, nullptr, &here);
                              });
}

// Momentum in f64, on single elements.
int momentum_step(void *, const void *, const vescomm_optimizer_run_t *run) {
    auto *momentum = static_cast<double *>(run->state[0]);
    for (std::int64_t i = 0; i < run->elements; ++i) {
        momentum[i] = 0.9 * momentum[i] + run->gradient[i] * run->gradient_scale;
        run->master[i] -= static_cast<float>(0.01 * run->learning_rate_scale * momentum[i]);
    }
    return 0;
}

const vescomm_optimizer_state_t momentum_state = {sizeof(vescomm_optimizer_state_t), VESCOMM_F64,
                                                  "momentum", 0, 0};

vescomm_optimizer_kind_t momentum() {
    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();
    kind.name = "momentum";
    kind.needs = [](void *, const void *, vescomm_optimizer_needs_t *needs, const char **) {
        needs->state_count = 1;
        needs->states = &momentum_state;
        return 0;
    };
    kind.step = momentum_step;
    kind.device_step = [](void *, const void *, const vescomm_optimizer_run_t *run, void *stream) {
        return launch_step(momentum_step, run,
                           static_cast<std::size_t>(run->elements) * sizeof(double), stream);
    };
    return kind;
}

// Keeps the largest gradient of each block of 6 elements, and divides by it.
constexpr std::int64_t block = 6;

std::int64_t length_of_block(const vescomm_optimizer_piece_t &piece, std::int64_t done) {
    const std::int64_t matrix = piece.rows * piece.columns;
    return std::min({block, matrix - (piece.first + done) % matrix, piece.elements - done});
}

int largest_step(void *, const void *, const vescomm_optimizer_run_t *run) {
    auto *largest = static_cast<float *>(run->state[0]);
    for (std::size_t k = 0; k < run->piece_count; ++k) {
        const vescomm_optimizer_piece_t &piece = *vescomm_optimizer_piece_at(run->pieces, k);
        std::int64_t number = piece.block;
        for (std::int64_t done = 0; done < piece.elements; ++number) {
            const std::int64_t length = length_of_block(piece, done);
            const float *gradient = run->gradient + piece.offset + done;
            for (std::int64_t i = 0; i < length; ++i)
                largest[number] = std::max(largest[number], std::fabs(gradient[i]));
            for (std::int64_t i = 0; i < length; ++i)
                if (largest[number] > 0)
                    run->master[piece.offset + done + i] -= 0.01f * gradient[i] / largest[number];
            done += length;
        }
    }
    return 0;
}

const vescomm_optimizer_state_t largest_state = {sizeof(vescomm_optimizer_state_t), VESCOMM_F32,
                                                 "largest", 1, 0};

vescomm_optimizer_kind_t largest() {
    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();
    kind.name = "largest";
    kind.needs = [](void *, const void *, vescomm_optimizer_needs_t *needs, const char **) {
        needs->state_count = 1;
        needs->states = &largest_state;
        needs->block_elements = block;
        return 0;
    };
    kind.step = largest_step;
    kind.device_step = [](void *, const void *, const vescomm_optimizer_run_t *run, void *stream) {
        std::size_t blocks = 0;
        for (std::size_t k = 0; k < run->piece_count; ++k) {
            const vescomm_optimizer_piece_t &piece = *vescomm_optimizer_piece_at(run->pieces, k);
            for (std::int64_t done = 0; done < piece.elements; ++blocks)
                done += length_of_block(piece, done);
        }
        return launch_step(largest_step, run, blocks * sizeof(float), stream);
    };
    return kind;
}

// Divides the gradient of a whole matrix by its sum of magnitudes; other parameters take the sign.
std::atomic<int> matrices{0};

int matrix_step(void *, const void *, const vescomm_optimizer_run_t *run) {
    double sum = 0;
    for (std::int64_t i = 0; i < run->elements; ++i) sum += std::fabs(run->gradient[i]);
    for (std::int64_t i = 0; i < run->elements && sum > 0; ++i)
        run->master[i] -= static_cast<float>(0.1 * run->gradient[i] / sum);
    return 0;
}

int sign_step(void *, const void *, const vescomm_optimizer_run_t *run) {
    for (std::int64_t i = 0; i < run->elements; ++i)
        if (run->gradient[i] != 0) run->master[i] -= std::copysign(0.01f, run->gradient[i]);
    return 0;
}

vescomm_optimizer_kind_t whole_matrices() {
    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();
    kind.name = "whole matrices";
    kind.needs = [](void *, const void *, vescomm_optimizer_needs_t *needs, const char **) {
        needs->block_elements = -1;
        return 0;
    };
    kind.step = sign_step;
    kind.matrix = matrix_step;
    kind.device_step = [](void *, const void *, const vescomm_optimizer_run_t *run, void *stream) {
        return launch_step(sign_step, run, 0, stream);
    };
    kind.device_matrix = [](void *, const void *, const vescomm_optimizer_run_t *run,
                            void *stream) {
        ++matrices;
        const vescomm_optimizer_piece_t &piece = run->pieces[0];
        EXPECT_EQ(run->piece_count, 1);
        EXPECT_EQ(piece.elements, piece.rows * piece.columns);
        return launch_step(matrix_step, run, 0, stream);
    };
    return kind;
}

// Some parameters are replicated, too.
std::vector<UnitModel> model_with_matrices() {
    std::vector<UnitModel> units = odd_model();
    for (UnitModel &unit : units)
        for (ParameterSpec &parameter : unit.parameters) {
            if (parameter.name == "up" || parameter.name == "experts")
                parameter.flags = VESCOMM_FSDP_MATRIX;
            if (parameter.name == "bias" || parameter.name == "experts")
                parameter.flags |= VESCOMM_FSDP_REPLICATED;
        }
    return units;
}

Described described_with(const vescomm_optimizer_kind_t &kind, const std::string &preset,
                         const vescomm_fsdp_spec_options_t &options) {
    Described described = describe(model_with_matrices(), preset, options);
    const vescomm_adamw_settings_t of_adamw = vescomm_adamw_settings_init();
    described.spec.add_group(all_ids(described), &kind,
                             kind.settings_bytes > 0 ? &of_adamw : nullptr);
    return described;
}

constexpr Training training{.steps = 3, .micro_batches = 2, .max_norm = 30};

std::vector<float> trained_on_host(const vescomm_optimizer_kind_t &kind) {
    std::vector<float> seen;
    run_ranks(1, [&](Communicator &comm) {
        seen =
            train(comm, described_with(kind, "zero3", vescomm_fsdp_spec_options_init()), training)
                .parameters;
    });
    return seen;
}

// Trains again, and compares the copies of partners with the shards.
void expect_equal_copies(Communicator &comm, const vescomm_optimizer_kind_t &kind,
                         const std::string &preset, const vescomm_fsdp_spec_options_t &options) {
    gpu_double::Device device(comm.rank());
    const Described described = described_with(kind, preset, on_device(options));
    Engine engine(described.spec, comm);
    fill(engine);
    for (int step = 0; step < training.steps; ++step)
        step_on_device(engine, comm, described, training, step, device);
    engine.check_replicas();
}

void expect_values_of_the_host(const vescomm_optimizer_kind_t &kind, int ranks,
                               const std::string &preset,
                               const vescomm_fsdp_spec_options_t &options) {
    SCOPED_TRACE(::testing::Message() << kind.name << " on " << ranks << " ranks, " << preset);
    const std::vector<float> expected = trained_on_host(kind);
    run_ranks(ranks, [&](Communicator &comm) {
        const Outcome outcome =
            train_on_device(comm, described_with(kind, preset, on_device(options)), training);
        EXPECT_TRUE(outcome.parameters == expected);
        if (options.partner_copy != 0) expect_equal_copies(comm, kind, preset, options);
    });
    EXPECT_EQ(gpu_double::take_violations(), "");
}

TEST(DeviceKinds, HaveTheBitsOfTheHost) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    for (const vescomm_optimizer_kind_t &kind : {momentum(), largest(), whole_matrices()})
        for (const int ranks : {1, 2, 3}) {
            options.partner_copy = ranks > 1 ? 1 : 0;
            expect_values_of_the_host(kind, ranks, "zero3", options);
            expect_values_of_the_host(kind, ranks, "zero1", options);
        }
    EXPECT_GT(matrices, 0);
    // The host updates shards in pinned memory.
    options.offload_to_host = 1;
    const int before = matrices;
    expect_values_of_the_host(whole_matrices(), 2, "zero3", options);
    EXPECT_EQ(matrices, before);
}

TEST(DeviceKinds, StatesTravelThroughCheckpoints) {
    for (const vescomm_optimizer_kind_t &kind : {momentum(), largest()}) {
        const TemporaryFolder folder;
        const std::vector<float> expected = trained_on_host(kind);
        const auto train_steps = [&](Communicator &comm, const Described &described, Engine &engine,
                                     int from, int to, gpu_double::Device &device) {
            for (int step = from; step < to; ++step)
                step_on_device(engine, comm, described, training, step, device);
        };
        run_ranks(3, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described = described_with(kind, "zero3", on_device());
            Engine engine(described.spec, comm);
            fill(engine);
            train_steps(comm, described, engine, 0, 1, device);
            engine.save(folder.path("c")).wait(60);
        });
        run_ranks(2, [&](Communicator &comm) {
            gpu_double::Device device(comm.rank());
            const Described described = described_with(kind, "zero3", on_device());
            Engine engine(described.spec, comm);
            engine.load(folder.path("c"));
            train_steps(comm, described, engine, 1, training.steps, device);
            EXPECT_TRUE(read_all_on_device(engine, described.ids, device) == expected);
        });
        EXPECT_EQ(gpu_double::take_violations(), "");
    }
}

TEST(DeviceKinds, MayFail) {
    vescomm_optimizer_kind_t kind = momentum();
    kind.device_step = [](void *, const void *, const vescomm_optimizer_run_t *, void *) {
        return 7;
    };
    run_ranks(2, [&](Communicator &comm) {
        try {
            train_on_device(comm, described_with(kind, "zero3", on_device()), training);
            ADD_FAILURE() << "trained";
        } catch (const Error &error) {
            EXPECT_NE(std::string(error.what()).find("optimizer \"momentum\" returned 7 for a run"),
                      std::string::npos)
                << error.what();
        }
    });
}

void expect_refused(const vescomm_optimizer_kind_t &kind,
                    const vescomm_fsdp_spec_options_t &options, const std::string &sentence) {
    expect_unsupported([&] { return described_with(kind, "zero3", on_device(options)); }, sentence);
}

vescomm_optimizer_kind_t adamw_with_matrices() {
    vescomm_optimizer_kind_t kind = *vescomm_optimizer_get_adamw();
    kind.name = "adamw with matrices";
    kind.needs = [](void *, const void *settings, vescomm_optimizer_needs_t *needs,
                    const char **reason) {
        const vescomm_optimizer_kind_t *adamw = vescomm_optimizer_get_adamw();
        const int result = adamw->needs(adamw->context, settings, needs, reason);
        needs->block_elements = -1;
        return result;
    };
    return kind;
}

TEST(DeviceKinds, NeedMastersInF32) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.compute_type = options.master_type = VESCOMM_BF16;
    expect_refused(momentum(), options,
                   "masters in bf16 with the functions of optimizer \"momentum\" are");
    vescomm_optimizer_kind_t kind = adamw_with_matrices();
    kind.device_matrix = whole_matrices().device_matrix;
    expect_refused(kind, options, "masters in bf16 with the functions of optimizer \"adamw with");
}

TEST(DeviceKinds, NeedAFunctionForMatricesIfTheHostHasOne) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    vescomm_optimizer_kind_t kind = adamw_with_matrices();
    kind.matrix = matrix_step;
    expect_refused(kind, options, "optimizer \"adamw with matrices\" has no device_step");
    options.partner_copy = 1;
    kind.device_step = momentum().device_step;
    expect_refused(kind, options, "which has one of matrix and device_matrix");
}

TEST(DeviceKinds, MatricesOfAdamWMayHaveAFunctionOfTheProgram) {
    vescomm_optimizer_kind_t kind = adamw_with_matrices();
    kind.matrix = matrix_step;
    kind.device_matrix = whole_matrices().device_matrix;
    expect_values_of_the_host(kind, 3, "zero3", vescomm_fsdp_spec_options_init());
}

}  // namespace
}  // namespace vescomm::fsdp::testing
