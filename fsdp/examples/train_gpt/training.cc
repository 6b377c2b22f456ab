// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "fsdp/examples/train_gpt/gather.h"
namespace train_gpt {

namespace {

// True if the death of another rank can be the cause of an error.
bool may_be_a_death(vescomm_status_t status) {
    return status == VESCOMM_ERROR_PEER_FAILED || status == VESCOMM_ERROR_ABORTED ||
           status == VESCOMM_ERROR_TIMEOUT;
}

// Collective.
int smallest(const vescomm::Communicator &comm, int mine) {
    std::int32_t least = mine;
    vescomm::check(vescomm_all_reduce(comm.get(), &least, &least, 1, VESCOMM_I32, VESCOMM_MIN,
                                      nullptr, nullptr, nullptr));
    return least;
}

// True if it is true on all ranks. Collective.
bool everywhere(const vescomm::Communicator &comm, bool here) {
    return smallest(comm, here ? 1 : 0) == 1;
}

// Name of the latest save in a folder; empty: none.
std::string latest_in(const std::string &folder) {
    std::ifstream file(std::filesystem::path(folder) / "latest");
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Saves::Saves(const Options &options) : options_(options), earlier_(latest_in(options.save)) {}

bool Saves::exists() const {
    const std::string latest = latest_in(options_.save);
    return !latest.empty() && latest != earlier_;
}

void Saves::step(Trainer &trainer, int done) {
    const bool due = options_.save_every > 0 && done % options_.save_every == 0;
    if (options_.save.empty() || (!due && done != options_.steps) || done <= started_) return;
    wait();
    running_ = trainer.engine().save(options_.save, trainer.extra());
    started_ = done;
}

void Saves::wait() {
    constexpr double max_seconds = 3600;
    if (running_.get() != nullptr) running_.wait(max_seconds);
    running_ = {};
    complete_ = started_;
}

void Saves::abandon() {
    running_ = {};
    started_ = complete_;
}

void Saves::agree(const vescomm::Communicator &comm) {
    started_ = complete_ = smallest(comm, complete_);
}

Training::Training(vescomm::Communicator &comm, std::optional<Trainer> &trainer,
                   const Options &options, const TextData &text, Results &results)
    : comm_(comm),
      trainer_(trainer),
      options_(options),
      text_(text),
      results_(results),
      saves_(options),
      first_rank_(comm.rank()) {}

Training::~Training() {
    if (!earlier_.empty()) trainer_.reset();
}

void Training::begin() {
    if (!trainer_) trainer_.emplace(comm_, options_, text_);
    results_.first_step = 0;
    if (!options_.load.empty()) {
        trainer_->engine().load(options_.load);
        const int done = trainer_->set_extra_of_checkpoint();
        if (done >= options_.steps && options_.export_folder.empty())
            throw std::runtime_error(
                fmt::format("--load {} has done {} steps, and --steps is {}; give more steps, or "
                            "--export to export this model",
                            options_.load, done, options_.steps));
        results_.first_step = done;
    }
    begun_ = true;
}

void Training::train() {
    const int first = results_.first_step;
    Progress progress(options_, quiet());
    int done = first + static_cast<int>(results_.steps.size());
    for (;;) {
        if (done > first) saves_.step(*trainer_, done);
        const bool due = done == first || done >= options_.steps ||
                         (options_.held_out_every > 0 && done % options_.held_out_every == 0);
        if (due && (results_.held_out.empty() || results_.held_out.back().first != done)) {
            results_.held_out.emplace_back(done, trainer_->held_out_loss());
            progress.held_out(done, results_.held_out.back().second);
        }
        if (done >= options_.steps) break;
        results_.steps.push_back(trainer_->step(done));
        progress.step(done, results_.steps.back());
        ++done;
        die_if_due(done);
    }
    saves_.wait();
}

void Training::die_if_due(int done) const {
    for (const Options::Death &death : options_.deaths)
        if (death.step == done && death.rank == first_rank_) std::raise(SIGKILL);
}

// Returns true if ranks have died.
bool Training::shrink() {
    const int before = comm_.ranks();
    vescomm::Communicator survivors = comm_.shrink();
    // The engine uses its communicator until it has recovered.
    earlier_.push_back(std::move(comm_));
    comm_ = std::move(survivors);
    return comm_.ranks() < before;
}

// Rank 0 chooses, because a save that ends now may be seen by some ranks and not by others.
const char *Training::choose_checkpoint() const {
    enum { none, saved, loaded };
    int choice = none;
    if (comm_.rank() == 0)
        choice = saves_.exists() ? saved : !options_.load.empty() ? loaded : none;
    choice = static_cast<int>(sum_over_ranks(comm_, choice));
    return choice == saved    ? options_.save.c_str()
           : choice == loaded ? options_.load.c_str()
                              : nullptr;
}

void Training::recover() {
    complete_ = false;
    // All ranks repeat what only some of them have completed.
    saves_.agree(comm_);
    if (!everywhere(comm_, trainer_ && begun_ && !lost_)) return begin_again();
    vescomm_fsdp_recovery_t recovery = vescomm_fsdp_recovery_init();
    recovery.folder = choose_checkpoint();
    recovery = trainer_->recover(comm_, recovery);
    const int done = static_cast<int>(recovery.steps);
    results_.return_to(done);
    const bool evaluated = !results_.held_out.empty() && results_.held_out.back().first == done;
    if (!everywhere(comm_, evaluated) && evaluated) results_.held_out.pop_back();
    // A step of which this rank has no result, because another rank died during the update.
    if (results_.first_step + static_cast<int>(results_.steps.size()) < done)
        results_.steps.push_back(trainer_->last_step());
    note({done, comm_.ranks(), 0,
          recovery.from_checkpoint != 0 ? "the last checkpoint" : "the survivors"});
}

void Training::begin_again() {
    trainer_.reset();
    begun_ = false;
    results_.return_to(0);
    begin();
    results_.held_out.clear();
    lost_ = false;
    note({results_.first_step, comm_.ranks(), 0, "the beginning"});
}

void Training::note(Recovery recovery) {
    const std::vector<std::int32_t> nodes = nodes_of_ranks(comm_);
    failed_ = false;
    earlier_.clear();
    results_.comm = comm_.info();
    results_.predict(trainer_->spec(), comm_, nodes, options_.accumulate);
    recovery.seconds = vescomm_trace_get_seconds() - failed_at_;
    if (!quiet()) fmt::print("{}", recovery_text(recovery));
    results_.recoveries.push_back(std::move(recovery));
}

void Training::run(const std::function<void()> &finish,
                   const std::function<void(bool again)> &write) {
    for (;;) try {
            const bool again = failed_ && everywhere(comm_, complete_);
            if (!again) {
                if (failed_) recover();
                if (!begun_) begin();
                if (results_.first_step < options_.steps) train();
                finish();
                complete_ = true;
            }
            if (comm_.rank() == 0) write(again);
            // If rank 0 dies before it has written everything, the others find out here. All ranks
            // have their results then. A checkpoint that is removed has been exported.
            if (options_.elastic || !options_.keep_save)
                vescomm::check(vescomm_barrier(comm_.get()));
            return;
        } catch (const vescomm::Error &error) {
            if (!options_.elastic || !may_be_a_death(error.status())) throw;
            if (!failed_) failed_at_ = vescomm_trace_get_seconds();
            saves_.abandon();
            // Without a further death, a recovery fails because shards are lost.
            if (!shrink()) {
                if (!failed_ || lost_ || error.status() != VESCOMM_ERROR_PEER_FAILED) throw;
                lost_ = true;
            }
            failed_ = true;
        }
}

}  // namespace train_gpt
