// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm-info: what this build has, what the environment says, and why an algorithm is chosen.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "config/config.h"
#include "execute/kernels.h"
#include "simulate/select.h"
#include "transport/transports.h"

namespace vescomm {
namespace {

struct Question {
    std::string collective;
    std::uint64_t bytes = 1 << 20;
    std::vector<int> nodes{4};
    bool per_rank = false;
    int steps_of = -1;
};

Collective collective_named(const std::string &name) {
    std::string names;
    for (const AlgorithmEntry &entry : algorithms()) {
        if (name_of(entry.collective) == name) return entry.collective;
        const std::string other(name_of(entry.collective));
        if (names.find(other) == std::string::npos) names += (names.empty() ? "" : ", ") + other;
    }
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                "there is no collective \"" + name + "\"; there is: " + names);
}

void explain(const Question &question) {
    Problem problem;
    problem.collective = collective_named(question.collective);
    for (const int size : question.nodes)
        if (size < 1)
            throw Error(
                VESCOMM_ERROR_INVALID_ARGUMENT,
                "--nodes: a node of " + std::to_string(size) + " ranks; give at least 1 each");
    problem.nodes = Nodes::from_sizes(question.nodes);
    problem.per_node = !question.per_rank && problem.collective == Collective::all_gather_v;
    const int ranks = problem.ranks();
    const auto elements = static_cast<std::int64_t>(question.bytes / sizeof(float));
    if (problem.collective != Collective::barrier)
        for (int rank = 0; rank <= ranks; ++rank) problem.cuts.push_back(elements * rank / ranks);

    const Choice choice = select(problem, {}, Machine{}, "");
    std::printf("%s of %llu bytes over %d ranks on %d nodes, one slab for each %s\n",
                question.collective.c_str(), static_cast<unsigned long long>(question.bytes), ranks,
                problem.nodes.count(), problem.per_node ? "node" : "rank");
    for (const AlgorithmEntry &entry : algorithms()) {
        if (entry.collective != problem.collective) continue;
        const char *mark = &entry == choice.algorithm ? "* " : entry.suits(problem) ? "  " : "- ";
        std::printf("%s%.*s: %.*s\n", mark, static_cast<int>(entry.name.size()), entry.name.data(),
                    static_cast<int>(entry.summary.size()), entry.summary.data());
    }
    std::printf("(*: chosen, because %s; -: does not suit this)\n", choice.why.c_str());
    if (question.steps_of < 0) return;
    if (question.steps_of >= ranks)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "--steps " + std::to_string(question.steps_of) +
                                                        ": ranks are 0 to " +
                                                        std::to_string(ranks - 1));
    std::printf("rank %d, offsets in f32 elements:\n%s", question.steps_of,
                describe(choice.algorithm->make(problem, question.steps_of)).c_str());
}

void show_build() {
    std::printf("vescomm %s\n\ntransports\n", vescomm_version());
    for (const TransportHelp &transport : transports())
        std::printf("  %-9s %s%s\n", transport.name.data(), transport.what.data(),
                    transport.built ? "" : " (not in this build)");
    std::printf("\nkernels\n  %s, the fastest of %zu that this machine can run\n", kernels().isa,
                supported_kernels().size());
    std::printf("\nvariables\n");
    for (const VariableHelp &variable : variables())
        std::printf("  %s%s%s%s\n      %s Default: %s%s%s.\n", variable.name.c_str(),
                    variable.unit.empty() ? "" : ", ", variable.unit.c_str(),
                    variable.values.empty() ? "" : (" (" + variable.values + ")").c_str(),
                    variable.what.c_str(),
                    variable.fallback.empty() ? "empty" : variable.fallback.c_str(),
                    variable.unit.empty() ? "" : " ", variable.unit.c_str());
}

}  // namespace
}  // namespace vescomm

int main(int argc, char **argv) {
    CLI::App app(
        "Shows what this build of vescomm has, which variables it reads, and with --explain which\n"
        "algorithm a collective uses and why.\n\n"
        "  vescomm-info\n"
        "  vescomm-info --explain all_gather_v --bytes 64MiB --nodes 3,1,2 --steps 0");
    vescomm::Question question;
    app.set_version_flag("--version", vescomm_version());
    auto *explain =
        app.add_option("--explain", question.collective, "a collective, such as all_gather_v");
    app.add_option("--bytes", question.bytes, "size of the whole buffer, such as 4096, 64KiB, 1MiB")
        ->transform(CLI::AsSizeValue(false))
        ->needs(explain);
    app.add_option("--nodes", question.nodes, "ranks on each node, such as 4 or 3,1,2")
        ->delimiter(',')
        ->needs(explain);
    app.add_flag("--per-rank", question.per_rank,
                 "all_gather_v into one slab for each rank, instead of one for each node")
        ->needs(explain);
    app.add_option("--steps", question.steps_of, "show the schedule of this rank")->needs(explain);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    try {
        if (question.collective.empty()) vescomm::show_build();
        else vescomm::explain(question);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "vescomm-info: %s\n", error.what());
        return 2;
    }
    return 0;
}
