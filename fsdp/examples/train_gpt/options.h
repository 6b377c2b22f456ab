// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "fsdp/examples/train_gpt/gpt.h"

namespace train_gpt {

struct Options {
    Shape shape = {.layers = 6, .dim = 256, .heads = 4, .context = 256};
    int batch = 8;  // sequences of all ranks together
    int steps = 320;
    std::uint64_t seed = 1;
    Precision precision = Precision::f32;
    double learning_rate = 1e-3;  // the highest

    int slots = 2;
    int gradient_slots = 2;
    bool uniform = false;
    std::int64_t block_rows = 32;

    std::string data;  // empty: the Python standard library
    int held_out_every = 80;  // steps; 0: only at the end
    int sample = 200;  // bytes
    std::string prompt = "def ";

    std::string json;
    std::string picture;
    std::string trace;
    bool quiet = false;

    // Differs when two ranks would not train the same model on the same sequences, or would not
    // take part in the same collectives.
    std::string of_all_ranks() const;
};

// What the user asked for makes no sense; the sentence says what does.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Nothing when the user wanted help, which has been printed then. Throws UsageError.
std::optional<Options> parse_options(int argc, const char *const *argv);

const char *name_of(Precision precision);

}  // namespace train_gpt
