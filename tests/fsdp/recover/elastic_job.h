// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A training job of forked ranks that go on after deaths. Every survivor compares its parameters
// after the last step with those of a training on one rank without deaths.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "fsdp/training.h"
#include "system/forked_ranks.h"

namespace vescomm::fsdp::testing {

constexpr int max_ranks = 8;

// Memory of all processes of a test.
struct Page {
    struct Rank {
        std::atomic<int> recoveries;
        std::atomic<int> from_checkpoint;
        std::atomic<double> seconds;  // longest time from an error to the end of a recovery
        std::atomic<bool> right;  // its parameters are those of one rank
    };
    std::atomic<std::uint64_t> expected;  // hash of the parameters after the last step
    std::atomic<int> arrived;
    Rank ranks[max_ranks];
};

inline std::uint64_t hash_of(const std::vector<float> &values) {
    std::uint64_t hash = 1469598103934665603U;
    for (const float value : values) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        hash = (hash ^ bits) * 1099511628211U;
    }
    return hash;
}

// Kills this process after `seconds`.
inline void die_in(double seconds) {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGKILL;
    timer_t timer{};
    forked_ranks::expect(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "a timer");
    itimerspec when{};
    when.it_value.tv_nsec = static_cast<long>(seconds * 1e9) + 1;
    forked_ranks::expect(timer_settime(timer, 0, &when, nullptr) == 0, "the time of a timer");
}

// How the ranks of a job train.
struct Elastic {
    std::string preset = "zero3";
    std::string preset_of_survivors = {};  // empty: the same
    bool partner_copy = true;
    bool replicated = false;  // vectors and scalars lie whole on every rank
    bool adam8bit = false;  // states with an element for each block
    bool narrow = false;  // masters in bf16
    std::string folder = {};  // of checkpoints, saved after the first step; empty: none
    int steps = 4;

    Described described(const std::string &mesh) const {
        std::vector<UnitModel> units = odd_model();
        for (UnitModel &unit : units)
            for (ParameterSpec &parameter : unit.parameters)
                if (replicated && parameter.shape.size() < 2)
                    parameter.flags = VESCOMM_FSDP_REPLICATED;
        Described described = describe(units, mesh, options());
        const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
        if (adam8bit)
            described.spec.add_group(all_ids(described), vescomm_optimizer_get_adam8bit(),
                                     &settings);
        return described;
    }

    vescomm_fsdp_spec_options_t options() const {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.partner_copy = partner_copy ? 1 : 0;
        if (narrow) options.master_type = VESCOMM_BF16;
        return options;
    }
};

// One rank: trains, and recovers whenever others die.
class Trainee {
public:
    // Other ranks may die when `page.arrived` has counted all of them.
    Trainee(const Elastic &how, Communicator comm, Page &page, int rank)
        : how_(how),
          described_(how.described(how.preset)),
          comm_(std::move(comm)),
          mine_(page.ranks[rank]),
          engine_(described_.spec, comm_) {
        fill(engine_);
        ++page.arrived;
    }

    // Called before each step and before each recovery.
    std::function<void(int step)> before_step = [](int) {};
    std::function<void()> before_shrink = [] {};
    std::function<void()> before_recovery = [] {};

    void train() {
        int step = 0;
        while (step < how_.steps) try {
                before_step(step);
                take(step);
                ++step;
                if (step == 1 && !how_.folder.empty() && engine_.counters().steps == 1)
                    engine_.save(how_.folder).wait(60);
            } catch (const Error &error) {
                step = recover(step, error);
            }
        mine_.right = false;
        for (;;) try {
                parameters_ = read_all(engine_, described_.ids);
                // A rank that has left may not be missed by one that has not read yet.
                check(vescomm_barrier(comm_.get()));
                return;
            } catch (const Error &error) {
                recover(step, error);
            }
    }

    const std::vector<float> &parameters() const { return parameters_; }
    Engine &engine() { return engine_; }

private:
    void take(int step) {
        micro_batch(engine_, described_.ids, {}, step, comm_.rank(), comm_.ranks(), true);
        vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
        arguments.max_norm = 30;
        const auto done = engine_.step(arguments).step;
        forked_ranks::expect(done == step + 1, "the number of a step");
    }

    // Returns the number of steps that are done.
    int recover(int step, const Error &first) {
        const auto begin = std::chrono::steady_clock::now();
        const auto seconds = [&] {
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        };
        std::string why = first.what();
        for (;;) {
            const int before = comm_.ranks();
            before_shrink();
            vescomm_comm_t *less = nullptr;
            forked_ranks::require(vescomm_comm_shrink(comm_.get(), nullptr, 0, &less), "shrink");
            Communicator survivors(less);
            if (survivors.ranks() == before) forked_ranks::fail("no rank has died: " + why);
            comm_ = std::move(survivors);
            before_recovery();
            try {
                vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
                if (!how_.folder.empty()) recovery.folder = how_.folder.c_str();
                std::optional<Described> other;
                if (!how_.preset_of_survivors.empty()) {
                    other.emplace(how_.described(how_.preset_of_survivors));
                    recovery.spec = other->spec.get();
                }
                recovery = engine_.recover(comm_, recovery);
                ++mine_.recoveries;
                mine_.from_checkpoint = mine_.from_checkpoint + recovery.from_checkpoint;
                mine_.seconds = std::max<double>(mine_.seconds, seconds());
                if (recovery.from_checkpoint == 0)
                    forked_ranks::expect(recovery.steps >= step && recovery.lost_steps == 0,
                                         "no step is lost");
                return static_cast<int>(recovery.steps);
            } catch (const Error &error) {
                why = error.what();
            }
        }
    }

    const Elastic &how_;
    Described described_;
    Communicator comm_;
    Page::Rank &mine_;
    Engine engine_;
    std::vector<float> parameters_;
};

inline Communicator create(const forked_ranks::Job &job, int rank) {
    vescomm_comm_t *made = nullptr;
    forked_ranks::require(job.create(rank, nullptr, &made), "create");
    return Communicator(made);
}

// Computes page.expected in a process of its own.
inline void train_alone(const Elastic &how, Page &page) {
    Elastic alone = how;
    alone.preset = "zero3";
    alone.folder.clear();
    const forked_ranks::Job job{1, 1};
    forked_ranks::run(job, [&](int rank) {
        Trainee trainee(alone, create(job, rank), page, rank);
        trainee.train();
        page.expected = hash_of(trainee.parameters());
    });
}

}  // namespace vescomm::fsdp::testing
