// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "vescomm/fsdp.hpp"

namespace train_gpt {

namespace {

constexpr const char *description =
    "Trains a byte-level GPT whose parameters, gradients and optimizer state are sharded over the\n"
    "ranks of vescomm. Without any options it learns the source of Python's standard library:\n"
    "\n"
    "    vescomm-run -n 4 train_gpt --picture loss.png\n";

constexpr const char *explanation =
    "Columns, in milliseconds a step unless stated otherwise:\n"
    "  loss           nats per byte of the step's batch; ln 256 = 5.55 is guessing\n"
    "  step           wall-clock time of rank 0 for forward, backward and optimizer\n"
    "  tokens/s       bytes trained on per second, by all ranks together\n"
    "  communication  time of rank 0 in collectives: moving and reducing bytes, and waiting; the\n"
    "                 same as exposed unless a thread moves bytes while the model computes\n"
    "  exposed        time of rank 0 inside the engine, without the optimizer: the time that free\n"
    "                 communication would save. In the JSON it is the average over ranks.\n"
    "\n"
    "The same seed and batch give the same losses for any number of ranks, up to rounding.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage.\n";

void require(bool holds, const std::string &sentence) {
    if (!holds) throw UsageError(sentence);
}

void require_at_least(const char *option, std::int64_t value, std::int64_t min) {
    require(value >= min, fmt::format("{} is {}; it must be at least {}", option, value, min));
}

void require_either(const char *option, const std::string &value, const char *one,
                    const char *other) {
    require(value == one || value == other,
            fmt::format("{} {} is neither {} nor {}", option, value, one, other));
}

Precision parse_precision(const char *option, const std::string &name) {
    for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16})
        if (name == name_of(precision)) return precision;
    throw UsageError(fmt::format("{} {} is neither f32, bf16 nor f16", option, name));
}

std::optional<int> parse_number(std::string_view text) {
    int number = 0;
    const char *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || rest != end) return std::nullopt;
    return number;
}

// CLI11 turns -1 into the largest unsigned number, and a number that is too large into the largest
// one. Returns an error, or nothing.
std::string require_unsigned(const std::string &text) {
    errno = 0;
    std::strtoull(text.c_str(), nullptr, 0);
    const bool holds = errno == 0 && text.find('-') == std::string::npos;
    return holds ? "" : fmt::format("{} is no number from 0 to 2^64 - 1", text);
}

std::string require_signed(const std::string &text) {
    errno = 0;
    std::strtoll(text.c_str(), nullptr, 0);
    return errno == 0 ? "" : fmt::format("{} is no number from -2^63 to 2^63 - 1", text);
}

// The number of ranks, which the preset must divide, is not known yet.
void require_preset(const std::string &preset) {
    try {
        vescomm::fsdp::Spec().preset(preset);
    } catch (const vescomm::Error &error) {
        throw UsageError(fmt::format("--preset {}: {}", preset, error.what()));
    }
}

int parse_ranks(const std::string &reshard) {
    const int ranks = parse_number(reshard).value_or(0);
    require(ranks >= 1,
            fmt::format("--reshard {} is neither yes, no nor a number of ranks", reshard));
    return ranks;
}

Options::Death parse_death(const std::string &text, int steps) {
    const std::string_view view = text;
    const std::size_t colon = std::min(view.find(':'), view.size());
    const Options::Death death = {
        .step = parse_number(view.substr(0, colon)).value_or(0),
        .rank = parse_number(view.substr(std::min(colon + 1, view.size()))).value_or(-1)};
    require(
        death.step >= 1 && death.step < steps && death.rank >= 0,
        fmt::format("--kill-after {} is not STEP:RANK with a step from 1 to {} and a rank of at "
                    "least 0",
                    text, steps - 1));
    return death;
}

std::string without_slashes(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    return folder;
}

void check(const Options &options) {
    const Shape &shape = options.shape;
    require_at_least("--layers", shape.layers, 0);
    require_at_least("--dim", shape.dim, 1);
    require_at_least("--heads", shape.heads, 1);
    require_at_least("--context", shape.context, 1);
    require(shape.dim % shape.heads == 0,
            fmt::format("--dim {} is not a multiple of --heads {}; --dim {} is", shape.dim,
                        shape.heads, (shape.dim / shape.heads + 1) * shape.heads));
    require_at_least("--batch", options.batch, 1);
    require_at_least("--steps", options.steps, 1);
    require(std::isfinite(options.learning_rate) && options.learning_rate >= 0,
            fmt::format("--lr is {}; it must be a number of at least 0", options.learning_rate));
    require(std::isfinite(options.clip) && options.clip >= 0,
            fmt::format("--clip is {}; it must be a number of at least 0", options.clip));
    require(
        options.loss_scale >= 1 && options.loss_scale <= 0x1p64,
        fmt::format("--loss-scale is {}; it must be a number from 1 to 2^64", options.loss_scale));
    require_at_least("--loss-scale-interval", options.loss_scale_interval, 0);
    require_at_least("--accumulate", options.accumulate, 1);
    require_preset(options.preset);
    require(
        options.order == "declared" || options.order == "recorded" || options.order == "explicit",
        fmt::format("--order {} is neither declared, recorded nor explicit", options.order));
    require_at_least("--slots", options.slots, 1);
    require_at_least("--large-unit-bytes", options.large_unit_bytes, 0);
    if (!options.gather_type.empty())
        require_either("--gather-dtype", options.gather_type, "f8", "int8");
    if (!options.reduce_type.empty())
        require_either("--reduce-dtype", options.reduce_type, "f8", "int8");
    require_either("--rounding", options.rounding, "nearest", "stochastic");
    require(options.rounding == "stochastic" || options.master_type != Precision::f32,
            "--rounding nearest is for --master-dtype bf16 and f16: f32 is not rounded");
    require_at_least("--gather-block", options.gather_block, 1);
    require_at_least("--save-every", options.save_every, 0);
    require(!options.save.empty() || options.save_every == 0,
            "--save-every needs --save, the folder of the checkpoints");
    require_at_least("--gradient-slots", options.gradient_slots, 1);
    require(options.block_rows >= 1 || options.block_rows == -1,
            fmt::format("--block-rows is {}; it must be at least 1, or -1 for whole matrices",
                        options.block_rows));
    require(!options.elastic || options.trace.empty(),
            "--elastic and --trace exclude each other, because a trace ends with its ranks");
    require_at_least("--held-out-every", options.held_out_every, 0);
    require_at_least("--sample", options.sample, 0);
    require(options.recommend >= 0 && options.recommend < 0x1p40,
            fmt::format("--recommend is {}; it must be a number of at least 0 and below 2^40",
                        options.recommend));
    require(options.sample == 0 || !options.prompt.empty(),
            "--prompt is empty; generating text needs at least one byte to start from");
    require(options.picture.empty() || options.picture.ends_with(".png") ||
                options.picture.ends_with(".svg"),
            fmt::format("--picture {} ends in neither .png nor .svg, which are the formats it can "
                        "be drawn in",
                        options.picture));
}

}  // namespace

std::string Options::of_all_ranks() const {
    return fmt::format(
        "{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} "
        "{} "
        "{} {} {} {} {}",
        shape.layers, shape.dim, shape.heads, shape.context, batch, steps, seed, name_of(precision),
        learning_rate, slots, gradient_slots, uniform, block_rows, held_out_every, sample,
        !trace.empty(), clip, accumulate, recompute, preset, order, reshard, reshard_ranks, save,
        save_every, load, loss_scale, loss_scale_interval, gather_type, gather_block, reduce_type,
        elastic, partner_copy, large_unit_bytes, name_of(master_type), rounding);
}

std::optional<Options> parse_options(int argc, const char *const *argv) {
    Options options;
    CLI::App app(description, "train_gpt");
    app.footer(explanation);
    app.set_version_flag("--version", std::string("train_gpt ") + vescomm_get_version(),
                         "print the version and exit");
    // The last value of an option applies, so that scripts can append arguments that override.
    app.option_defaults()->always_capture_default()->multi_option_policy(
        CLI::MultiOptionPolicy::TakeLast);

    app.add_option("--layers", options.shape.layers, "blocks of the model")->group("Model");
    app.add_option("--dim", options.shape.dim, "width, a multiple of the heads")->group("Model");
    app.add_option("--heads", options.shape.heads, "attention heads")->group("Model");
    app.add_option("--context", options.shape.context, "bytes in a sequence")->group("Model");
    std::string dtype = name_of(options.precision), master_dtype = name_of(options.master_type);
    app.add_option("--dtype", dtype,
                   "type of gathered parameters, gradients and computation: f32, bf16 or f16; "
                   "sums and moments are f32")
        ->group("Model");
    app.add_option(
           "--master-dtype", master_dtype,
           "type of masters, which the optimizer updates: f32, or bf16 or f16 in half the memory")
        ->group("Model");
    app.add_option("--rounding", options.rounding,
                   "of masters in bf16 or f16: stochastic, so that small changes are not lost, or "
                   "nearest, as PyTorch does")
        ->group("Model");

    const char *training = "Training";
    app.add_option("--data", options.data,
                   "file or folder of text; without it, the source of the newest Python standard "
                   "library of this machine")
        ->capture_default_str()
        ->group(training);
    app.add_option("--batch", options.batch,
                   "sequences of a step, of all ranks together; need not divide by the ranks")
        ->group(training);
    app.add_option("--steps", options.steps, "optimizer steps")->group(training);
    app.add_option(
           "--lr", options.learning_rate,
           "peak learning rate: reached after 10 steps; then it falls, to a half after 490 steps")
        ->group(training);
    app.add_option("--clip", options.clip, "largest norm of the gradients; 0: no limit")
        ->group(training);
    app.add_option(
           "--loss-scale", options.loss_scale,
           "first scale of the loss with --dtype f16; it is halved when gradients overflow, "
           "and that step is skipped")
        ->group(training);
    app.add_option("--loss-scale-interval", options.loss_scale_interval,
                   "steps without an overflow after which the loss scale doubles; 0: never")
        ->group(training);
    app.add_option("--accumulate", options.accumulate,
                   "micro-batches that a step is cut into; the batch stays the same")
        ->group(training);
    app.add_flag("--recompute", options.recompute,
                 "repeat the forward pass of a block before its backward pass, for less memory")
        ->group(training);
    app.add_option("--seed", options.seed, "of initial values, sequences and the sample")
        ->check(require_unsigned)
        ->group(training);
    app.add_option("--held-out-every", options.held_out_every,
                   "steps between losses of the held-out tenth of the text; 0: only at the end")
        ->group(training);

    const char *sharding = "Sharding";
    app.add_option("--preset", options.preset,
                   "ddp, zero1, zero2, zero3, hsdp:K or mics:K, where K ranks shard the model, or "
                   "hpz:K, which is zero3 with --reshard K")
        ->group(sharding);
    app.add_option("--order", options.order,
                   "order in which units are prefetched: declared, recorded or explicit")
        ->group(sharding);
    std::string reshard = options.reshard ? "yes" : "no";
    app.add_option("--reshard", reshard,
                   "release units after their forward pass: yes, no, or a number K of ranks: each "
                   "K ranks keep a copy of the gathered parameters, so that further gathers stay "
                   "among them")
        ->group(sharding);
    app.add_option("--gather-dtype", options.gather_type,
                   "type in which parameters travel between ranks: f8 or int8, with a scale for "
                   "each block; without it, that of --dtype")
        ->group(sharding);
    app.add_option(
           "--reduce-dtype", options.reduce_type,
           "type in which gradients travel between ranks: f8 or int8, with a scale for each "
           "block; without it, that of --dtype. They are summed in f32")
        ->group(sharding);
    app.add_option("--gather-block", options.gather_block,
                   "largest number of elements with one scale, with --gather-dtype and "
                   "--reduce-dtype")
        ->group(sharding);
    app.add_option("--slots", options.slots, "units whose parameters are gathered at a time")
        ->group(sharding);
    app.add_option("--large-unit-bytes", options.large_unit_bytes,
                   "units with more bytes of gathered parameters have slots of their own, so that "
                   "the others are smaller; 0: no unit")
        ->check(require_signed)
        ->group(sharding);
    app.add_option("--gradient-slots", options.gradient_slots,
                   "units whose gradients may be in transfer at a time")
        ->group(sharding);
    app.add_option("--block-rows", options.block_rows,
                   "rows of a matrix that stay on one rank; -1: all of them")
        ->check(require_signed)
        ->group(sharding);
    app.add_flag("--uniform", options.uniform, "equal shards, padded, instead of ragged ones")
        ->group(sharding);

    auto *offload =
        app.add_option("--offload", options.offload,
                       "keep masters and moments in files instead of memory, in this folder of a "
                       "local disk, which is created if it does not exist; without a value, in the "
                       "folder for temporary files")
            ->expected(0, 1)
            ->group(sharding);

    const char *checkpoints = "Checkpoints";
    app.add_option("--save", options.save,
                   "folder of checkpoints: saved at the end, the newest two remain")
        ->group(checkpoints);
    app.add_option("--save-every", options.save_every,
                   "steps between saves in the background; 0: only at the end")
        ->group(checkpoints);
    app.add_option("--load", options.load,
                   "folder of checkpoints: go on after the step of the latest one, on any number "
                   "of ranks, up to --steps in all")
        ->group(checkpoints);
    app.add_option(
           "--export", options.export_folder,
           "new folder for the trained model as safetensors of Hugging Face; with --load "
           "of a checkpoint that has done --steps, nothing is trained and nothing else written")
        ->group(checkpoints);

    const char *failures = "Failures";
    app.add_flag("--elastic", options.elastic,
                 "when ranks die, the others go on after the last complete step; start the program "
                 "with vescomm-run --min-ranks 1")
        ->group(failures);
    std::string partner_copy = options.partner_copy ? "yes" : "no";
    app.add_option("--partner-copy", partner_copy,
                   "with --elastic: each rank holds a copy of another rank's shards, so that no "
                   "step is lost, yes or no; without copies training goes on from the last "
                   "checkpoint, or from the beginning")
        ->group(failures);
    std::vector<std::string> deaths;
    app.add_option("--kill-after", deaths,
                   "STEP:RANK, to try --elastic: after this step the process of this rank kills "
                   "itself; give it several times for several ranks")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(failures);

    const char *output = "Output";
    app.add_option("--sample", options.sample, "bytes of text to generate in the end; 0: none")
        ->group(output);
    app.add_option("--prompt", options.prompt, "start of the generated text")->group(output);
    app.add_option("--json", options.json, "file for the results (schema train-gpt/1; bytes, ms)")
        ->group(output);
    app.add_option("--picture", options.picture,
                   "file for the loss curve, .png or .svg; needs matplotlib")
        ->group(output);
    app.add_option("--trace", options.trace, "file for a trace of all ranks, to open in Perfetto")
        ->group(output);
    app.add_flag("--summary", options.summary,
                 "print the parts of the time of a step: waits, norm, optimizer and computation")
        ->group(output);
    app.add_option("--recommend", options.recommend,
                   "print the preset with the least traffic among those that need at most this "
                   "memory on each rank, in MiB; the training does not use it; 0: none")
        ->group(output);
    app.add_flag("--quiet", options.quiet, "print nothing but errors")->group(output);

    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &) {
        std::cout << app.help();
        return std::nullopt;
    } catch (const CLI::CallForVersion &version) {
        std::cout << version.what() << '\n';
        return std::nullopt;
    } catch (const CLI::ParseError &error) {
        throw UsageError(error.what());
    }
    for (const char *name : {"--save", "--load", "--export"})
        require(app.count(name) == 0 || !app[name]->as<std::string>().empty(),
                fmt::format("{} names no folder; give one", name));
    if (offload->count() > 0 && options.offload.empty())
        options.offload = std::filesystem::temp_directory_path().string();
    // A checkpoint is what is exported.
    options.keep_save = !options.save.empty() || options.export_folder.empty();
    if (!options.keep_save) options.save = without_slashes(options.export_folder) + ".checkpoint";
    options.precision = parse_precision("--dtype", dtype);
    options.master_type = parse_precision("--master-dtype", master_dtype);
    options.reshard = reshard != "no";
    if (reshard != "yes" && reshard != "no") options.reshard_ranks = parse_ranks(reshard);
    require_either("--partner-copy", partner_copy, "yes", "no");
    options.partner_copy = partner_copy == "yes";
    for (const std::string &death : deaths)
        options.deaths.push_back(parse_death(death, options.steps));
    check(options);
    return options;
}

const char *name_of(Precision precision) {
    return precision == Precision::f16 ? "f16" : precision == Precision::f32 ? "f32" : "bf16";
}

}  // namespace train_gpt
