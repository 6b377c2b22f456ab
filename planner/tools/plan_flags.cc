// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/tools/plan_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "planner/models/models.h"

namespace vescomm::planner {
namespace {

constexpr const char *what =
    "Plans how a model's tensors lie in fused buffers and where ranks are cut, and says how good\n"
    "the plan is: padding, the fullest rank, bytes on the wire, and the bound that no plan beats.\n"
    "Reads names, types and shapes only; a model of a terabyte is planned on a laptop.";

std::string make_footer() {
    std::string text =
        "Sizes are bytes: 4096, 64KiB, 80GiB, 80GB. Shapes, offsets, cuts and blocks are "
        "elements.\n\n"
        "Modes:\n"
        "  ragged    the largest shard of every buffer is as small as possible; no padding\n"
        "  balanced  ragged, and what a rank holds of all buffers together is even\n"
        "  uniform   equal shards, padded, for libraries that only move equal counts\n"
        "  owner     whole matrices on one rank, for Muon and Shampoo; the work is even\n"
        "  auto      uniform or ragged, whichever takes less time on the wire\n\n"
        "Models:\n";
    for (const BuiltInModel &model : built_in_models())
        text += fmt::format("  {:16}  {}\n", model.name, model.summary);
    text +=
        "\nUnits, unless --unit names them: one for each layer (layers.<n>., h.<n>., "
        "blocks.<n>.),\n"
        "one for the embedding, one for the rest; each element type has a buffer of its own.\n\n"
        "Examples:\n"
        "  vescomm-plan --model llama-3-70b --ranks 128 --block-rows 32\n"
        "  vescomm-plan --model gpt-oss-120b --ranks 512 --block-rows 128 --compare\n"
        "  vescomm-plan --safetensors Qwen3/ --ranks 64 --block 'mlp\\.gate=tensor' --json p.json\n"
        "  vescomm-plan --model deepseek-v3 --ranks 1024 --advise --memory 80GiB\n"
        "  vescomm-plan --model llama-3-8b --ranks 8 --picture plan.svg\n\n"
        "Exit code: 0 planned; 1 there is no such layout, or a file could not be written; 2 wrong\n"
        "usage or input.";
    return text;
}

void add_sources(CLI::App &app, PlanFlags &flags) {
    app.add_option("--model", flags.model, "A built-in model; see below.")->option_text("NAME");
    app.add_option("--safetensors", flags.safetensors,
                   "A *.safetensors file, or a folder of them. Only headers are read.")
        ->option_text("PATH");
    app.add_option("--tensors", flags.tensors,
                   "JSON: {\"tensors\": [{\"name\", \"shape\", \"dtype\", \"block_rows\",\n"
                   "\"block\": \"tensor\", \"batch_dims\", \"align\", \"unit\"}, ...]};\n"
                   "name and shape are needed.")
        ->option_text("FILE");
}

void add_plan(CLI::App &app, PlanFlags &flags) {
    app.add_option("--ranks", flags.ranks, "Ranks that share the model.")->option_text("COUNT");
    app.add_option("--mode", flags.mode, "See below (default ragged).")
        ->option_text("ragged|balanced|uniform|owner|auto");
    app.add_option("--align-start", flags.align_start,
                   "Every tensor starts at a multiple of this (default 128 bytes).")
        ->option_text("BYTES");
    app.add_option("--align-cut", flags.align_cut,
                   "Ragged cuts lie there where blocks allow it (default 128 bytes).")
        ->option_text("BYTES");
    app.add_option("--weights", flags.weights,
                   "A rank of weight 2 takes twice the elements of one of weight 1:\n"
                   "2,1,1 or 2x8,1x8 for eight ranks of each.")
        ->option_text("W,W,...");
    app.add_option("--search-steps", flags.search_steps,
                   "Limit of the search for a better order or a proof if the bound is\n"
                   "not met; a step takes about 10 ns (default 20,000,000; 0: none).")
        ->option_text("COUNT");
}

void add_rules(CLI::App &app, PlanFlags &flags) {
    app.add_option("--block-rows", flags.block_rows,
                   "Rows that stay on one rank, of tensors with two dimensions and\n"
                   "more (default 1). Vectors may be cut anywhere.")
        ->option_text("ROWS");
    app.add_option("--block", flags.blocks,
                   "Block rows for tensors in whose name REGEX is found; \"tensor\" keeps\n"
                   "the whole tensor together. May repeat; the last match applies.")
        ->option_text("REGEX=ROWS|tensor")
        ->allow_extra_args(false);
    app.add_option("--unit", flags.units,
                   "Tensors in whose name REGEX is found are gathered together; the first\n"
                   "group of REGEX is the name of the unit. May repeat.")
        ->option_text("REGEX")
        ->allow_extra_args(false);
}

void add_costs(CLI::App &app, PlanFlags &flags) {
    app.add_option("--ranks-per-node", flags.ranks_per_node,
                   "Ranks that --node-bandwidth connects (default 8).")
        ->option_text("COUNT");
    app.add_option("--node-bandwidth", flags.node_bandwidth,
                   "Bytes per second that a rank receives from its own node, for times\n"
                   "on the wire, --mode auto and --advise (default 300GB).")
        ->option_text("BYTES");
    app.add_option("--network-bandwidth", flags.network_bandwidth,
                   "Bytes per second that a rank receives when several nodes take part\n"
                   "(default 50GB, which can be written as 400Gbit).")
        ->option_text("BYTES");
}

void add_advice(CLI::App &app, PlanFlags &flags) {
    app.add_flag("--compare", flags.compare,
                 "All modes, and what FSDP2, Megatron-FSDP and veScale-FSDP would cost.");
    app.add_flag("--advise", flags.advise, "Recommend how many ranks share one copy of the model.");
    app.add_option("--memory", flags.memory,
                   "For --advise: memory of a rank for parameters, optimizer and\n"
                   "gradients, without activations.")
        ->option_text("BYTES");
    app.add_option("--owned-bytes", flags.owned_bytes,
                   "For --advise: bytes for each element that a rank owns, of its\n"
                   "master, optimizer states and gradient (default 4,8,4).")
        ->option_text("M,S,G");
    app.add_option("--slots", flags.slots,
                   "For --advise: units gathered at once, and units whose gradients exist\n"
                   "at once (default 2,2).")
        ->option_text("P,G");
}

void add_outputs(CLI::App &app, PlanFlags &flags) {
    app.add_option("--json", flags.json,
                   "Write the plan, with the results of --compare and --advise; - prints\n"
                   "it, and nothing else.")
        ->option_text("FILE");
    app.add_flag("--no-cuts", flags.no_cuts,
                 "Leave the cuts, ranks + 1 for each unit, out of the JSON.");
    app.add_option("--picture", flags.picture, "Draw the plan (needs python3-matplotlib).")
        ->option_text("FILE.svg|.png");
    app.add_flag("--version", flags.version, "Print the version and exit.");
}

}  // namespace

void add_options(CLI::App &app, PlanFlags &flags) {
    app.description(what);
    app.footer(make_footer());
    add_sources(app, flags);
    add_plan(app, flags);
    add_rules(app, flags);
    add_costs(app, flags);
    add_advice(app, flags);
    add_outputs(app, flags);
}

}  // namespace vescomm::planner
