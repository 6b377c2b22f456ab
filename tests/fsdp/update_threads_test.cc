// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Updates of shards in several threads: the bits of one thread, and runs that are divided only if
// their optimizer permits it.
#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/observed_sgd.h"
#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

std::vector<UnitModel> large_model() {
    std::vector<UnitModel> units = odd_model();
    units.push_back({"large",
                     {{.name = "first", .shape = {150'001}},
                      {.name = "small", .shape = {3}},
                      {.name = "second", .shape = {70'000, 2}}}});
    return units;
}

Outcome train_with(int ranks, int threads, bool sgd, vescomm_fsdp_spec_options_t options) {
    options.update_threads = threads;
    Outcome outcome;
    run_ranks(ranks, [&](Communicator &comm) {
        Described described = describe(large_model(), "zero3", options);
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        settings.momentum = 0.9;
        if (sgd)
            described.spec.add_group(all_ids(described), vescomm_optimizer_get_sgd(), &settings);
        const Outcome own = train(comm, described, {.max_norm = 0.5});
        if (comm.rank() == 0) outcome = own;
    });
    return outcome;
}

TEST(UpdateThreads, HaveTheBitsOfOneThread) {
    for (const bool sgd : {false, true})
        for (const int ranks : {1, 2}) {
            const vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            const Outcome one = train_with(ranks, 1, sgd, options);
            ASSERT_FALSE(one.parameters.empty());
            for (const int threads : {0, 2, 5})
                EXPECT_EQ(train_with(ranks, threads, sgd, options).parameters, one.parameters)
                    << ranks << " ranks, " << threads << " threads";
        }
}

TEST(UpdateThreads, UpdatePartnerCopiesAndFiles) {
    const checkpoint::testing_support::TemporaryFolder folder;
    const std::string path = folder.path(".");
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    const Outcome one = train_with(2, 1, false, options);
    options.partner_copy = 1;
    options.offload_folder = path.c_str();
    EXPECT_EQ(train_with(2, 3, false, options).parameters, one.parameters);
}

// The elements of the largest run, and the threads that updated runs, on one rank.
struct Seen {
    std::int64_t largest = 0;
    std::set<std::thread::id> threads;
};

Seen see_runs(bool concurrent) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.update_threads = 4;
    Seen seen;
    std::mutex mutex;
    run_ranks(1, [&](Communicator &comm) {
        ObservedSgd sgd;
        sgd.kind.concurrent = concurrent ? 1 : 0;
        sgd.before = [&](const vescomm_optimizer_run_t &run) {
            const std::lock_guard lock(mutex);
            seen.largest = std::max(seen.largest, run.elements);
            seen.threads.insert(std::this_thread::get_id());
            return 0;
        };
        Described described = describe(large_model(), "zero3", options);
        sgd.add_to(described);
        train(comm, described, {});
    });
    return seen;
}

TEST(UpdateThreads, DivideRunsOnlyOfConcurrentKinds) {
    const Seen alone = see_runs(false);
    EXPECT_GE(alone.largest, 290'004);
    EXPECT_EQ(alone.threads.size(), 1);
    EXPECT_LT(see_runs(true).largest, 100'000);
}

TEST(UpdateThreads, ReportAKindThatFails) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.update_threads = 3;
    run_ranks(1, [&](Communicator &comm) {
        ObservedSgd sgd;
        sgd.kind.concurrent = 1;
        sgd.before = [](const vescomm_optimizer_run_t &run) {
            return run.pieces->first > 40'000 ? 7 : 0;
        };
        Described described = describe(large_model(), "zero3", options);
        sgd.add_to(described);
        EXPECT_NE(
            sentence_of([&] { train(comm, described, {}); }).find("\"observed sgd\" returned 7"),
            std::string::npos);
    });
}

TEST(UpdateThreads, AreNoNegativeNumber) {
    for (const int wrong : {-1, 1025}) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.update_threads = wrong;
        EXPECT_EQ(sentence_of([&] { const Spec spec(options); }),
                  "vescomm_fsdp_spec_create: update_threads is " + std::to_string(wrong) +
                      "; it must be at least 0 and at most 1024");
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
