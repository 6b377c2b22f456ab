// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/examples/train_gpt/gpt.h"

namespace train_gpt {

struct Options {
    Shape shape = {.layers = 6, .dim = 256, .heads = 4, .context = 256};
    int batch = 8;  // sequences of all ranks together
    int steps = 320;
    std::uint64_t seed = 1;
    Precision precision = Precision::f32;
    Precision master_type = Precision::f32;
    std::string rounding = "stochastic";  // of masters in bf16 or f16; or nearest
    std::string gather_type;  // f8 or int8; empty: the type of the precision
    std::string reduce_type;  // the same for gradients
    int gather_block = 128;  // elements with one scale
    double loss_scale = 65536;  // first loss scale; f16 only
    int loss_scale_interval = 2000;  // steps until it grows
    double learning_rate = 1e-3;  // peak value
    double clip = 1.0;  // largest norm of the gradients; 0: no limit
    int accumulate = 1;  // micro-batches of a step
    bool recompute = false;  // forward passes of blocks are repeated before their backward passes

    std::string preset = "zero3";
    std::string order = "declared";
    bool reshard = true;  // release units after forward
    int reshard_ranks = 0;  // ranks in a group that keeps a copy; 0: no copies

    int slots = 2;
    std::int64_t large_unit_bytes = 0;  // more than these: slots of its own; 0: no unit
    int gradient_slots = 2;
    bool uniform = false;
    std::int64_t block_rows = 32;
    std::string offload;  // folder for masters and moments; empty: memory

    std::string data;  // empty: the Python standard library
    int held_out_every = 80;  // steps; 0: only at the end
    int sample = 200;  // bytes
    std::string prompt = "def ";

    std::string save;  // folder of checkpoints; empty: none
    int save_every = 0;  // steps; 0: only at the end
    std::string load;  // folder of checkpoints
    std::string export_folder;
    bool keep_save = true;  // false: the checkpoint is there only to be exported

    bool elastic = false;  // go on when ranks die
    bool partner_copy = true;  // with elastic: each rank holds a copy of another rank's shards
    struct Death {
        int step = 0;
        int rank = 0;  // when the program began
    };
    std::vector<Death> deaths;

    std::string json;
    std::string picture;
    std::string trace;
    bool summary = false;  // print the times of a step
    double recommend = 0;  // MiB of memory for the engine of a rank; 0: recommend nothing
    bool quiet = false;

    // Returns the options that must be equal on all ranks: those that determine the model, the
    // sequences and the collectives.
    std::string of_all_ranks() const;
};

// Thrown for invalid options. The text is a sentence that says what is valid.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Parses the command line. Returns nothing after printing --help or --version. Throws UsageError.
std::optional<Options> parse_options(int argc, const char *const *argv);

const char *name_of(Precision precision);

}  // namespace train_gpt
