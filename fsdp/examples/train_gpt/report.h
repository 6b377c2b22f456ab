// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The output of a run: a header, progress lines, a memory table, a JSON file. No function here
// communicates.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fsdp/examples/train_gpt/memory_usage.h"
#include "fsdp/examples/train_gpt/options.h"
#include "fsdp/examples/train_gpt/text_data.h"
#include "fsdp/examples/train_gpt/trainer.h"
#include "vescomm/fsdp.hpp"
#include "vescomm/vescomm.hpp"

namespace train_gpt {

// A recovery from the death of ranks.
struct Recovery {
    int step = 0;  // steps done, from which training went on
    int ranks = 0;  // survivors
    double seconds = 0;  // from the error to the survivors' readiness
    std::string from;  // source of the lost shards: survivors, checkpoint or beginning
};

// The results of a whole run.
struct Results {
    vescomm_comm_info_t comm;
    vescomm_fsdp_report_t largest;  // of the rank with the most bytes
    vescomm_fsdp_report_t mine;
    int first_step = 0;  // number of the first one in steps
    std::vector<StepResult> steps;  // of this rank
    std::vector<Recovery> recoveries;
    std::vector<std::pair<int, double>> held_out;  // steps done, loss
    double exposed_seconds = 0;  // of a step, average over ranks and steps
    double communication_seconds = 0;  // of a step, average over ranks and steps
    double memory_before = 0;  // proportional set size of this process before it made the model
    MemoryUse memory;

    // Sets `largest` and `mine`. `nodes`: of each rank of `comm`.
    void predict(const vescomm::fsdp::Spec &spec, const vescomm::Communicator &comm,
                 const std::vector<std::int32_t> &nodes, int micro_batches);

    // Drops the results of steps that have to be repeated.
    void return_to(int step);

    // Seconds of a step. The first step prepares kernels and counts only if it is the only one.
    double median_seconds() const;
    double min_seconds() const;
    double tokens_per_second(const Options &options) const;
};

// Returns the header: model, text and sharding.
std::string header_text(const Options &options, const TextData &text, const Results &results);

// Returns the memory table: memory of the largest rank and node, and memory without sharding.
std::string memory_text(const Options &options, const Results &results);

std::string recovery_text(const Recovery &recovery);

// Returns a summary of losses and times.
std::string summary_text(const Options &options, const Results &results, double seconds);

// Returns JSON of schema train-gpt/1. The numbers of gathers in "measured" are null if no step
// directly follows another one, as with one step, or with an evaluation before each step: they
// would not be those of a steady step, which "report" predicts.
std::string json_text(const Options &options, const TextData &text, const Results &results);

// Replaces bytes that a terminal cannot print.
std::string printable(const std::string &text);

// Prints a table of steps: about twenty lines and, on a terminal, the current step below them.
class Progress {
public:
    Progress(const Options &options, bool quiet);
    ~Progress();
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    void step(int step, const StepResult &result);
    void held_out(int steps, double loss);

private:
    std::string line(int step) const;
    void print(const std::string &text, bool stays);

    const Options &options_;
    bool quiet_;
    bool terminal_;
    int every_;  // steps between lines that stay
    int steps_ = 0;  // since the last line that stays
    StepResult sum_;  // over these steps
};

}  // namespace train_gpt
