// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/tools/plan_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "planner/input/sizes.h"
#include "planner/models/models.h"
#include "vescomm/vescomm.h"

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
        "  ragged    the largest shard of every buffer as small as possible; no padding to move\n"
        "  balanced  ragged, and what a rank holds of all buffers together is even\n"
        "  uniform   equal shards, padded, for libraries that move only such\n"
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

// As CLI11 reads them.
struct Given {
    PlanOptions options;
    std::string mode = "ragged";
    std::vector<std::string> blocks;
    std::vector<std::string> units;
    std::string align_start = "128";
    std::string align_cut = "128";
    std::string weights;
    std::string memory;
    std::vector<double> owned_bytes = {4, 8, 4};
    std::vector<int> slots = {2, 2};
    bool no_cuts = false;
    bool version = false;
};

struct NamedMode {
    std::string_view name;
    Mode mode;
};

constexpr NamedMode modes[] = {
    {"ragged", Mode::ragged}, {"balanced", Mode::balanced}, {"uniform", Mode::uniform},
    {"owner", Mode::owner},   {"auto", Mode::automatic},
};

void add_sources(CLI::App &app, PlanOptions &options) {
    app.add_option("--model", options.model, "A built-in model; see below.")->option_text("NAME");
    app.add_option("--safetensors", options.safetensors,
                   "A *.safetensors file, or a folder of them. Only headers are read.")
        ->option_text("PATH");
    app.add_option("--tensors", options.tensors,
                   "JSON: {\"tensors\": [{\"name\", \"shape\", \"dtype\", \"block_rows\",\n"
                   "\"block\": \"tensor\", \"batch_dims\", \"align\", \"unit\"}, ...]};\n"
                   "name and shape are needed.")
        ->option_text("FILE");
}

void add_rules(CLI::App &app, Given &given) {
    app.add_option("--block-rows", given.options.rules.block_rows,
                   "Rows that stay on one rank, of tensors with two dimensions and\n"
                   "more (default 1). Vectors may be cut anywhere.")
        ->option_text("ROWS");
    app.add_option("--block", given.blocks,
                   "The same for tensors in whose name REGEX is found; \"tensor\" keeps\n"
                   "the whole tensor together. May repeat; the last that matches counts.")
        ->option_text("REGEX=ROWS|tensor")
        ->allow_extra_args(false);
    app.add_option("--unit", given.units,
                   "Tensors in whose name REGEX is found are gathered together; what\n"
                   "its first group captures names the unit. May repeat.")
        ->option_text("REGEX")
        ->allow_extra_args(false);
}

void add_plan(CLI::App &app, Given &given) {
    PlanOptions &options = given.options;
    app.add_option("--ranks", options.ranks, "Ranks that share the model.")->option_text("COUNT");
    app.add_option("--mode", given.mode, "See below (default ragged).")
        ->option_text("ragged|balanced|uniform|owner|auto");
    app.add_option("--align-start", given.align_start,
                   "Every tensor starts at a multiple of this (default 128 bytes).")
        ->option_text("BYTES");
    app.add_option("--align-cut", given.align_cut,
                   "Ragged cuts lie there where blocks allow it (default 128 bytes).")
        ->option_text("BYTES");
    app.add_option("--weights", given.weights,
                   "A rank of weight 2 takes twice the elements of one of weight 1:\n"
                   "2,1,1 or 2x8,1x8 for eight ranks of each.")
        ->option_text("W,W,...");
    app.add_option("--search-steps", options.search_steps,
                   "Where the bound is not met, search so long for a better order or\n"
                   "a proof; a step takes about 10 ns (default 20,000,000; 0: not at all).")
        ->option_text("COUNT");
}

void add_outputs(CLI::App &app, Given &given) {
    PlanOptions &options = given.options;
    app.add_flag("--compare", options.compare,
                 "All modes, and what FSDP2, Megatron-FSDP and veScale-FSDP would cost.");
    app.add_flag("--advise", options.advise,
                 "How many of the ranks should share one copy of the model.");
    app.add_option("--memory", given.memory,
                   "For --advise: what a rank has for parameters, optimizer and\n"
                   "gradients, without activations.")
        ->option_text("BYTES");
    app.add_option("--ranks-per-node", options.advice.ranks_per_node, "For --advise (default 8).")
        ->option_text("COUNT");
    app.add_option("--owned-bytes", given.owned_bytes,
                   "For --advise: bytes for each element that a rank owns, of its\n"
                   "master, optimizer states and gradient (default 4,8,4).")
        ->delimiter(',')
        ->expected(3)
        ->option_text("M,S,G");
    app.add_option("--slots", given.slots,
                   "For --advise: units that are gathered at once, and whose gradients\n"
                   "are there at once (default 2,2).")
        ->delimiter(',')
        ->expected(2)
        ->option_text("P,G");
    app.add_option("--json", options.json, "Write the plan; - prints it, and nothing else.")
        ->option_text("FILE");
    app.add_flag("--no-cuts", given.no_cuts, "Leave the cuts out of it: ranks + 1 for each unit.");
    app.add_option("--picture", options.picture, "Draw the plan (needs python3-matplotlib).")
        ->option_text("FILE.svg|.png");
    app.add_flag("--version", given.version, "Print the version and exit.");
}

void check_numbers(const PlanOptions &options) {
    const int sources = static_cast<int>(!options.model.empty()) +
                        static_cast<int>(!options.safetensors.empty()) +
                        static_cast<int>(!options.tensors.empty());
    if (sources != 1)
        throw InputError(fmt::format(
            "{} of --model, --safetensors and --tensors {} given; give exactly one",
            sources == 0 ? "none" : std::to_string(sources), sources == 1 ? "is" : "are"));
    if (options.ranks == 0) throw InputError("--ranks COUNT is missing: how many share the model");
    constexpr int most_ranks = 10'000'000;
    if (options.ranks < 1 || options.ranks > most_ranks)
        throw InputError(
            fmt::format("--ranks {}: give a number from 1 to {}", options.ranks, most_ranks));
    if (options.advice.ranks_per_node < 1)
        throw InputError(
            fmt::format("--ranks-per-node {}: give at least 1", options.advice.ranks_per_node));
    if (options.search_steps < 0)
        throw InputError(fmt::format("--search-steps {}: give at least 0", options.search_steps));
    if (!options.weights.empty() &&
        options.weights.size() != static_cast<std::size_t>(options.ranks))
        throw InputError(fmt::format("--weights has {} weights for {} ranks; give one for each",
                                     options.weights.size(), options.ranks));
}

void check_outputs(const Given &given) {
    const PlanOptions &options = given.options;
    if (!given.memory.empty() && !options.advise)
        throw InputError("--memory is only for --advise; give both");
    if (options.advise && !options.weights.empty())
        throw InputError("--advise takes no --weights; plan with them for one size of group");
    if (options.json == "-" && (options.compare || options.advise))
        throw InputError(
            "--json - prints nothing else; give a file, or leave out --compare and "
            "--advise");
    if (given.no_cuts && options.json.empty())
        throw InputError("--no-cuts is only for --json; give both");
    const std::string kind = std::filesystem::path(options.picture).extension().string();
    if (!options.picture.empty() && kind != ".svg" && kind != ".png")
        throw InputError(
            fmt::format("--picture {}: give a name that ends in .svg or .png", options.picture));
}

void finish_advice(Given &given) {
    AdviceOptions &advice = given.options.advice;
    if (!given.memory.empty()) {
        advice.memory_bytes = static_cast<double>(parse_bytes(given.memory, "--memory"));
        if (advice.memory_bytes == 0) throw InputError("--memory 0: nothing fits into no bytes");
    }
    for (const double bytes : given.owned_bytes)
        if (!(bytes >= 0 && bytes <= 1024))
            throw InputError(fmt::format("--owned-bytes {}: give bytes from 0 to 1024", bytes));
    for (const int slots : given.slots)
        if (slots < 1) throw InputError(fmt::format("--slots {}: give at least 1", slots));
    advice.master_bytes = given.owned_bytes[0];
    advice.state_bytes = given.owned_bytes[1];
    advice.gradient_shard_bytes = given.owned_bytes[2];
    advice.parameter_slots = given.slots[0];
    advice.gradient_slots = given.slots[1];
}

PlanOptions finish(Given &given) {
    PlanOptions &options = given.options;
    const auto mode = std::ranges::find(modes, given.mode, &NamedMode::name);
    if (mode == std::end(modes))
        throw InputError(fmt::format(
            "--mode {}: there is ragged, balanced, uniform, owner and auto", given.mode));
    options.mode = mode->mode;
    options.align_start = parse_bytes(given.align_start, "--align-start");
    options.align_cut = parse_bytes(given.align_cut, "--align-cut");
    if (!given.weights.empty()) options.weights = parse_weights(given.weights, "--weights");
    finish_advice(given);
    check_numbers(options);
    check_outputs(given);
    for (const std::string &text : given.blocks)
        options.rules.blocks.push_back(parse_block_rule(text));
    for (const std::string &text : given.units)
        options.rules.units.push_back(parse_unit_rule(text));
    options.cuts = !given.no_cuts;
    return options;
}

}  // namespace

std::string_view name_of(Mode mode) {
    const auto found = std::ranges::find(modes, mode, &NamedMode::mode);
    return found == std::end(modes) ? "?" : found->name;
}

std::string PlanOptions::title() const {
    if (!model.empty()) return model;
    const std::filesystem::path path = tensors.empty() ? safetensors : tensors;
    // "folder/" has no last name.
    const std::filesystem::path name =
        path.has_filename() ? path.filename() : path.parent_path().filename();
    return name.string();
}

std::variant<PlanOptions, PlanAnswer> read_plan_options(int argc, const char *const *argv) {
    CLI::App app(what, "vescomm-plan");
    app.footer(make_footer());
    Given given;
    add_sources(app, given.options);
    add_plan(app, given);
    add_rules(app, given);
    add_outputs(app, given);
    try {
        app.parse(argc, argv);
        if (given.version)
            return PlanAnswer{0, fmt::format("vescomm-plan {}\n", vescomm_version())};
        return finish(given);
    } catch (const CLI::CallForHelp &) {
        return PlanAnswer{0, app.help()};
    } catch (const CLI::ParseError &error) {
        return PlanAnswer{2,
                          fmt::format("vescomm-plan: {}; see vescomm-plan --help\n", error.what())};
    } catch (const InputError &error) {
        return PlanAnswer{2,
                          fmt::format("vescomm-plan: {}; see vescomm-plan --help\n", error.what())};
    }
}

}  // namespace vescomm::planner
