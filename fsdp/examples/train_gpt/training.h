// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The steps of a run, with saves and held-out losses. With --elastic it goes on when ranks die:
//
//     error of a dead rank ──► shrink the communicator ──► recover the engine ──► next step
//                                   ▲                            │ more ranks have died
//                                   └────────────────────────────┘
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "fsdp/examples/train_gpt/options.h"
#include "fsdp/examples/train_gpt/report.h"
#include "fsdp/examples/train_gpt/text_data.h"
#include "fsdp/examples/train_gpt/trainer.h"
#include "vescomm/fsdp.hpp"
#include "vescomm/vescomm.hpp"

namespace train_gpt {

// Saves in the background. At most one save runs at a time.
class Saves {
public:
    // Called before the first save of any rank.
    explicit Saves(const Options &options);

    // Starts a save if one is due after `done` steps. Collective.
    void step(Trainer &trainer, int done);
    // Returns when the last save is complete.
    void wait();
    // Ends a running save without waiting for other ranks.
    void abandon();
    // After a recovery: a save counts as complete only if all ranks have seen its end. Collective.
    void agree(const vescomm::Communicator &comm);
    // True if the folder has a complete save of this training.
    bool exists() const;

private:
    const Options &options_;
    std::string earlier_;  // name of the latest save of an earlier training
    vescomm::fsdp::Job running_;  // empty if no save has begun
    int started_ = 0;  // steps of the last save
    int complete_ = 0;  // steps of the last complete one
};

class Training {
public:
    // All arguments must outlive the training. `trainer` has a value.
    Training(vescomm::Communicator &comm, std::optional<Trainer> &trainer, const Options &options,
             const TextData &text, Results &results);
    ~Training();

    // Trains up to the last step, unless the loaded checkpoint has done it, then calls `finish`,
    // which is collective too, and on rank 0 `write`. If ranks die in between and the options
    // permit it, the others repeat what is incomplete. If only rank 0 may have died before it had
    // written everything, another rank writes again.
    void run(const std::function<void()> &finish, const std::function<void(bool again)> &write);

private:
    void begin();
    void train();
    void die_if_due(int done) const;
    bool shrink();
    void recover();
    void begin_again();
    const char *choose_checkpoint() const;
    void note(Recovery recovery);
    bool quiet() const { return options_.quiet || comm_.rank() != 0; }

    vescomm::Communicator &comm_;
    std::vector<vescomm::Communicator> earlier_;  // from which the engine has not recovered yet
    std::optional<Trainer> &trainer_;
    const Options &options_;
    const TextData &text_;
    Results &results_;
    Saves saves_;
    const int first_rank_;  // rank of this process before any death
    bool begun_ = false;  // the values of the engine are those of results_.first_step or later
    bool failed_ = false;  // ranks have died, and the engine has not recovered yet
    bool complete_ = false;  // this rank has its results
    bool lost_ = false;  // some shards have neither a copy nor a checkpoint
    double failed_at_ = 0;  // time of the error
};

}  // namespace train_gpt
