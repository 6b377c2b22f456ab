// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/tools/plan_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>

#include "planner/input/closest.h"
#include "planner/input/sizes.h"
#include "planner/problem.h"
#include "planner/tools/plan_flags.h"
#include "vescomm/vescomm.h"

namespace vescomm::planner {
namespace {

struct NamedMode {
    std::string_view name;
    Mode mode;
};

constexpr NamedMode modes[] = {
    {"ragged", Mode::ragged}, {"balanced", Mode::balanced}, {"uniform", Mode::uniform},
    {"owner", Mode::owner},   {"auto", Mode::automatic},
};

// Refuses command lines that CLI11 accepts but that are certainly mistakes.
void check_words(const CLI::App &app) {
    for (const std::string &word : app.remaining()) {
        if (!word.starts_with('-')) continue;
        std::vector<std::string> names;
        for (const CLI::Option *option : app.get_options()) names.push_back(option->get_name());
        throw InputError(fmt::format("there is no option {}{}", word, did_you_mean(word, names)));
    }
    if (!app.remaining().empty())
        throw InputError(fmt::format("{} belongs to no option", app.remaining().front()));
    for (const CLI::Option *option : app.get_options())
        for (const std::string &value : option->results())
            if (value.empty()) throw InputError(option->get_name() + " is followed by nothing");
}

// Rewrites messages of CLI11 such as "--ranks: At Most 1 required but received 2".
std::string mismatch(const CLI::ArgumentMismatch &error) {
    const std::string text = error.what();
    const std::string option = text.substr(0, text.find(':'));
    return text.find("missing") != std::string::npos
               ? fmt::format("{} needs a value", option)
               : fmt::format("{} is given more than once", option);
}

void check_source(const PlanFlags &flags) {
    const int sources = static_cast<int>(!flags.model.empty()) +
                        static_cast<int>(!flags.safetensors.empty()) +
                        static_cast<int>(!flags.tensors.empty());
    if (sources == 0)
        throw InputError("what to plan is missing: give --model, --safetensors or --tensors");
    if (sources > 1) throw InputError("give only one of --model, --safetensors and --tensors");
    if (flags.ranks.empty()) throw InputError("--ranks COUNT is missing: how many share the model");
}

// Refuses options that have no effect without another one.
void check_company(const CLI::App &app) {
    for (const char *option : {"--memory", "--owned-bytes", "--slots"})
        if (app.count(option) > 0 && app.count("--advise") == 0)
            throw InputError(fmt::format("{} is only for --advise; give both", option));
    if (app.count("--advise") > 0 && app.count("--weights") > 0)
        throw InputError("--advise takes no --weights; plan with them for one size of group");
    if (app.count("--no-cuts") > 0 && app.count("--json") == 0)
        throw InputError("--no-cuts is only for --json; give both");
}

Mode mode_named(const std::string &name) {
    const auto mode = std::ranges::find(modes, name, &NamedMode::name);
    if (mode == std::end(modes))
        throw InputError(
            fmt::format("--mode {}: there is ragged, balanced, uniform, owner and auto", name));
    return mode->mode;
}

AdviceOptions read_advice(const PlanFlags &flags) {
    constexpr double max_bytes = 1024;  // for an element; more is a mistake
    constexpr int max_ranks_in_node = 1'000'000;
    constexpr int max_slots = 1'000'000;
    AdviceOptions advice;
    advice.ranks_per_node = static_cast<int>(
        parse_count(flags.ranks_per_node, "--ranks-per-node", 1, max_ranks_in_node));
    advice.node_bytes_per_second = parse_bandwidth(flags.node_bandwidth, "--node-bandwidth");
    advice.network_bytes_per_second =
        parse_bandwidth(flags.network_bandwidth, "--network-bandwidth");
    if (!flags.memory.empty()) {
        advice.memory_bytes = static_cast<double>(parse_bytes(flags.memory, "--memory"));
        if (advice.memory_bytes == 0) throw InputError("--memory 0: nothing fits into no bytes");
    }
    const auto owned = parse_numbers(flags.owned_bytes, "--owned-bytes", 3, 0, max_bytes);
    advice.master_bytes = owned[0];
    advice.state_bytes = owned[1];
    advice.gradient_shard_bytes = owned[2];
    const auto slots = parse_numbers(flags.slots, "--slots", 2, 1, max_slots);
    for (const double count : slots)
        if (count != static_cast<int>(count))
            throw InputError(fmt::format("--slots {}: give whole numbers", flags.slots));
    advice.parameter_slots = static_cast<int>(slots[0]);
    advice.gradient_slots = static_cast<int>(slots[1]);
    return advice;
}

Rules read_rules(const PlanFlags &flags) {
    Rules rules;
    rules.block_rows = parse_count(flags.block_rows, "--block-rows", 1, max_elements);
    for (const std::string &text : flags.blocks) rules.blocks.push_back(parse_block_rule(text));
    for (const std::string &text : flags.units) rules.units.push_back(parse_unit_rule(text));
    return rules;
}

void check_picture(const std::string &path) {
    const std::string kind = std::filesystem::path(path).extension().string();
    if (!path.empty() && kind != ".svg" && kind != ".png")
        throw InputError(fmt::format("--picture {}: give a name that ends in .svg or .png", path));
}

PlanOptions read(const PlanFlags &flags) {
    check_source(flags);
    check_picture(flags.picture);
    PlanOptions options;
    options.model = flags.model;
    options.safetensors = flags.safetensors;
    options.tensors = flags.tensors;
    options.rules = read_rules(flags);
    options.ranks = static_cast<int>(parse_count(flags.ranks, "--ranks", 1, max_ranks));
    options.mode = mode_named(flags.mode);
    options.align_start = parse_bytes(flags.align_start, "--align-start");
    options.align_cut = parse_bytes(flags.align_cut, "--align-cut");
    if (!flags.weights.empty()) options.weights = parse_weights(flags.weights, "--weights");
    if (!options.weights.empty() &&
        options.weights.size() != static_cast<std::size_t>(options.ranks))
        throw InputError(fmt::format("--weights has {} weights for {} ranks; give one for each",
                                     options.weights.size(), options.ranks));
    options.search_steps = parse_count(flags.search_steps, "--search-steps", 0,
                                       std::numeric_limits<std::int64_t>::max());
    options.compare = flags.compare;
    options.advise = flags.advise;
    options.advice = read_advice(flags);
    options.json = flags.json;
    options.cuts = !flags.no_cuts;
    options.picture = flags.picture;
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
    // "folder/" has an empty file name.
    const std::filesystem::path name =
        path.has_filename() ? path.filename() : path.parent_path().filename();
    return name.string();
}

std::variant<PlanOptions, PlanAnswer> read_plan_options(int argc, const char *const *argv) {
    const auto complain = [](const std::string &text) {
        return PlanAnswer{2, fmt::format("vescomm-plan: {}; see vescomm-plan --help\n", text)};
    };
    CLI::App app("", "vescomm-plan");
    app.allow_extras();
    PlanFlags flags;
    add_options(app, flags);
    try {
        app.parse(argc, argv);
        check_words(app);
        if (flags.version)
            return PlanAnswer{0, fmt::format("vescomm-plan {}\n", vescomm_get_version())};
        check_company(app);
        return read(flags);
    } catch (const CLI::CallForHelp &) {
        return PlanAnswer{0, app.help()};
    } catch (const CLI::ArgumentMismatch &error) {
        return complain(mismatch(error));
    } catch (const CLI::ParseError &error) {
        return complain(error.what());
    } catch (const InputError &error) {
        return complain(error.what());
    }
}

}  // namespace vescomm::planner
