// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A child of fork() cannot use the engines and jobs of its parent, and the parent goes on.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

int fill_nothing(void *, std::uint64_t, std::int64_t, std::int64_t, float *, std::uint64_t) {
    return 0;
}

// Calls every function that takes an engine or a job. Returns the number, counted from 1, of the
// first one that does not refuse it; 0: all do.
int first_accepted(vescomm_fsdp_t *engine, vescomm_job_t *job, vescomm_comm_t *parent,
                   const vescomm_fsdp_spec_t *spec, const std::string &folder) {
    auto view = vescomm_fsdp_view_init();
    auto step = vescomm_fsdp_step_init();
    auto counters = vescomm_fsdp_counters_init();
    auto unit_counters = vescomm_fsdp_unit_counters_init();
    auto summary = vescomm_fsdp_step_summary_init();
    auto partial = vescomm_fsdp_partial_load_init();
    vescomm_fsdp_gradient_mode_t mode = 0;
    std::size_t size = 0;
    vescomm_comm_t *comm = nullptr;
    vescomm_job_t *other_job = nullptr;
    vescomm_fsdp_t *other_engine = nullptr;
    const float value = 0;
    const vescomm_status_t statuses[] = {
        vescomm_fsdp_begin(engine, VESCOMM_FSDP_LAST),
        vescomm_fsdp_pre_forward(engine, 0, nullptr),
        vescomm_fsdp_post_forward(engine, 0, nullptr),
        vescomm_fsdp_pre_backward(engine, 0, nullptr),
        vescomm_fsdp_post_backward(engine, 0, nullptr),
        vescomm_fsdp_unshard(engine, 0, nullptr),
        vescomm_fsdp_reshard(engine, 0, nullptr),
        vescomm_fsdp_parameter(engine, 0, &view),
        vescomm_fsdp_gradient(engine, 0, &view, &mode),
        vescomm_fsdp_push_gradient(engine, 0, &value, VESCOMM_F32, nullptr),
        vescomm_fsdp_begin_backward(engine),
        vescomm_fsdp_finish_backward(engine, nullptr),
        vescomm_fsdp_norm(engine, nullptr, nullptr),
        vescomm_fsdp_scale(engine, 1),
        vescomm_fsdp_step(engine, &step, nullptr),
        vescomm_fsdp_set_group(engine, 0, nullptr),
        vescomm_fsdp_check_replicas(engine),
        vescomm_fsdp_reset(engine),
        vescomm_fsdp_recover(engine, parent, nullptr),
        vescomm_fsdp_initialise(engine, fill_nothing, nullptr),
        vescomm_fsdp_shard(engine, 0, VESCOMM_FSDP_MASTER, 0, &view),
        vescomm_fsdp_pieces(engine, 0, nullptr, 0, &size),
        vescomm_fsdp_get_counters(engine, &counters),
        vescomm_fsdp_get_unit_counters(engine, 0, &unit_counters),
        vescomm_fsdp_get_step_summary(engine, &summary),
        vescomm_fsdp_get_metrics(engine, nullptr, 0, &size),
        vescomm_fsdp_get_comm(engine, &comm),
        vescomm_fsdp_progress(engine),
        vescomm_fsdp_wait_stream(engine, nullptr),
        vescomm_fsdp_save(engine, folder.c_str(), nullptr, &other_job),
        vescomm_fsdp_load(engine, folder.c_str()),
        vescomm_fsdp_load_partial(engine, folder.c_str(), &partial),
        vescomm_fsdp_get_load_report(engine, nullptr, 0, &size),
        vescomm_fsdp_get_extra(engine, 0, nullptr, 0, &size),
        vescomm_fsdp_create(spec, &parent, 1, &other_engine),
        vescomm_job_test(job),
        vescomm_job_wait(job, 1),
        vescomm_job_free(job),
        vescomm_fsdp_free(engine),
    };
    const auto *accepted = std::find_if(
        std::begin(statuses), std::end(statuses),
        [](vescomm_status_t status) { return status != VESCOMM_ERROR_INVALID_ARGUMENT; });
    return accepted == std::end(statuses) ? 0 : static_cast<int>(accepted - statuses) + 1;
}

TEST(Fork, AChildCannotUseTheEnginesOfItsParent) {
    const TemporaryFolder temporary;
    const std::string folder = temporary.path("saves");
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.update_threads = 3;
    constexpr int ranks = 2;
    const Outcome undisturbed = train_on(ranks, odd_model(), "zero3", options, {.steps = 2});
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(odd_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
        engine.step();
        Job job = engine.save(folder);
        comm.barrier();
        if (comm.rank() == 0) {
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0) {
                alarm(20);
                const int accepted = first_accepted(engine.get(), job.get(), comm.get(),
                                                    described.spec.get(), folder);
                if (accepted > 0) _exit(accepted);
                const std::string sentence = vescomm_get_last_error();
                auto report = vescomm_fsdp_report_init();
                const bool reports =
                    vescomm_fsdp_report(described.spec.get(), 2, &report) == VESCOMM_OK;
                const bool frees = vescomm_fsdp_free(nullptr) == VESCOMM_OK;
                const bool says = sentence.find(
                                      "vescomm_fsdp_free: engine was made before this "
                                      "process was forked") == 0;
                _exit(reports && frees && says ? 0 : 99);
            }
            int status = 0;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            EXPECT_EQ(status, 0) << "exit status " << WEXITSTATUS(status) << ", signal "
                                 << WTERMSIG(status);
        }
        comm.barrier();
        job.wait(60);
        micro_batch(engine, described.ids, {}, 1, comm.rank(), ranks, true);
        engine.step();
        EXPECT_EQ(read_all(engine, described.ids), undisturbed.parameters);
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
