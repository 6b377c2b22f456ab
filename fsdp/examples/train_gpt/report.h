// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// What the user sees of a run: a header, a line now and then, a memory table, a JSON file. Nothing
// here communicates.
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

// What a whole run has to show.
struct Results {
    vescomm_comm_info_t who;
    vescomm::fsdp::MemoryReport engine;
    std::vector<StepResult> steps;  // as rank 0 saw them
    std::vector<std::pair<int, double>> held_out;  // steps done, loss
    double exposed_seconds = 0;  // a step, average over ranks and steps
    double communication_seconds = 0;  // likewise
    MemoryUse memory;

    // Of a step; the first one, which prepares kernels, counts only when it is the only one.
    double median_seconds() const;
    double min_seconds() const;
    double tokens_per_second(const Options &options) const;
};

// The model, the text, and what is sharded how.
std::string header_text(const Options &options, const TextData &text, const Results &results);

// Who holds how much, and what it would be without sharding.
std::string memory_text(const Results &results);

// One line on what the run achieved.
std::string summary_text(const Options &options, const Results &results, double seconds);

// Schema train-gpt/1.
std::string json_text(const Options &options, const TextData &text, const Results &results);

// Text of any bytes as a terminal can take it.
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
    int every_;
    // Since the last line that stays.
    int steps_ = 0;
    StepResult sum_;
};

}  // namespace train_gpt
