// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm-info: shows the features of this build, the variables, the reasons for the choice of an
// algorithm, and what flight recorders report about a job that stopped.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "comm/machine_exchange.h"
#include "config/config.h"
#include "execute/kernels.h"
#include "gpu/gpu_libraries.h"
#include "tools/flight_report.h"
#include "tools/info_explain.h"
#include "tools/info_variables.h"
#include "tools/measure.h"
#include "topology/gpu_topology.h"
#include "topology/hardware.h"
#include "topology/node_name.h"
#include "transport/transports.h"

namespace vescomm::internal {
namespace {

// Begins each line with two spaces.
std::string indented(const std::string &text) {
    std::string result;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        result += "  " + text.substr(begin, end - begin) + "\n";
        begin = end + 1;
    }
    return result;
}

void show_gpu_topology() {
    try {
        const std::string text = describe(read_gpu_topology(read_nvlinks()));
        if (!text.empty()) std::printf("\nGPUs and network cards\n%s", indented(text).c_str());
    } catch (const Error &error) {
        std::printf("\nGPUs and network cards\n  %s\n", error.what());
    }
}

void show_gpu_support() {
    const GpuSupport support = examine_gpu_support();
    std::printf("\ndevice memory\n");
    for (const auto &[name, part] :
         {std::pair{"CUDA", &support.cuda}, std::pair{"GPUs", &support.devices},
          std::pair{"NCCL", &support.nccl}, std::pair{"kernels", &support.kernels}})
        std::printf("  %-7s %s%s\n", name, part->usable ? "" : "not usable: ", part->text.c_str());
    if (support.libraries)
        std::printf(
            "  Collectives on device memory (gpu.h) are available. They are experimental: tested "
            "on\n"
            "  one GPU at a time and on a test double, never on several GPUs.\n");
    else
        std::printf(
            "  Collectives on device memory (gpu.h) are not available. Nothing else depends on "
            "this.\n");
    if (support.kernel_obstacle().empty())
        std::printf("  Kernels on device memory (gpu_kernels.h) are available.\n");
    else std::printf("  Kernels on device memory (gpu_kernels.h) are not available.\n");
}

void show_build() {
    std::printf("vescomm %s\n\ntransports\n", vescomm_get_version());
    for (const TransportHelp &transport : transports())
        std::printf("  %-9s %s%s\n", transport.name.data(), transport.what.data(),
                    transport.built ? "" : " (not in this build)");
    std::printf("\nkernels\n  %s, the fastest of %zu that this machine can run\n", kernels().isa,
                supported_kernels().size());
    std::printf("\nthis machine\n");
    try {
        std::printf("  %s, %d cores, of which this process may use\n%s", processor_name().c_str(),
                    processor_cores(), indented(describe(read_hardware())).c_str());
    } catch (const Error &error) {
        std::printf("  %s\n", error.what());
    }
    const std::string file = own_machine_file(process_environment());
    std::error_code error;
    if (std::filesystem::exists(file, error)) std::printf("  measured: %s\n", file.c_str());
    else std::printf("  not measured; vescomm-info --measure does it\n");
    show_gpu_support();
    show_gpu_topology();
    std::printf("\nvariables\n");
    show_variables(process_environment());
}

}  // namespace
}  // namespace vescomm::internal

int main(int argc, char **argv) {
    CLI::App app(
        "Shows what this build of vescomm has, which variables it reads and what they are set to,\n"
        "with --explain which algorithm a collective uses and why, and with --flight which rank "
        "of\n"
        "a job that stopped is behind.\n\n"
        "  vescomm-info\n"
        "  vescomm-info --flight flight.*\n"
        "  vescomm-run -n 2 --bind core vescomm-info --measure\n"
        "  vescomm-info --explain all_gather_v --bytes 64MiB --nodes 3,1,2 --steps 0\n"
        "  vescomm-info --explain all_gather_v --bytes 1GiB --ranks 10000 --nodes 1250\n"
        "  vescomm-info --explain all_reduce --bytes 64KiB --table 8,64,512,4096 --nodes 8");
    app.footer("Exit codes: 0; 2 if an argument, a variable or a file is wrong.");
    vescomm::internal::Question question;
    app.set_version_flag("--version", std::string("vescomm-info ") + vescomm_get_version());
    bool markdown = false;
    app.add_flag("--markdown", markdown, "the variables only, as tables of docs/configuration.md");
    std::vector<std::string> flights;
    app.add_option("--flight", flights,
                   "files of flight recorders, one of each rank: show which rank is behind")
        ->option_text("FILE...");
    bool measure = false;
    app.add_flag("--measure", measure,
                 "measure memory and links with the ranks of a job; algorithms are chosen by that");
    auto *explain =
        app.add_option("--explain", question.collective, "a collective, such as all_gather_v")
            ->option_text("COLLECTIVE");
    const auto add = [&](const std::string &name, auto &value, const char *kind,
                         const std::string &text) {
        return app.add_option(name, value, text)
            ->option_text(kind)
            ->needs(explain)
            ->group("With --explain");
    };
    const auto add_flag = [&](const std::string &name, bool &value, const std::string &text) {
        return app.add_flag(name, value, text)
            ->option_text(" ")
            ->needs(explain)
            ->group("With --explain");
    };
    add("--bytes", question.bytes, "SIZE",
        "size of the whole buffer, such as 4096, 64KiB or 64kB; default 1MiB")
        ->transform(CLI::AsSizeValue(true))
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 42));  // as large as arrays may be
    add("--nodes", question.nodes, "COUNT,...",
        "ranks on each node, such as 3,1,2; default 4. With --ranks, how many nodes;\n"
        "default 1")
        ->delimiter(',');
    add("--ranks", question.ranks, "COUNT", "ranks, distributed evenly over the nodes")
        ->check(CLI::Range(1, 1000000));
    add("--ragged", question.ragged, "SHARES",
        "shares of the ranks: equal, linear, zipf:S, one-owner:F, or file:PATH, a file of\n"
        "numbers, one for each rank");
    CLI::Option *per_node =
        add_flag("--per-node", question.per_node, "all_gather_v into one slab for each node");
    bool per_rank = false;
    add_flag("--per-rank", per_rank, "all_gather_v into one slab for each rank; the default")
        ->excludes(per_node);
    add_flag("--arrays", question.arrays, "arrays of the callers, instead of a buffer");
    add("--algorithm", question.algorithm, "NAME", "use this algorithm");
    int cores = 0, nodes_per_host = 1, rails = -1;
    const char *transport = vescomm::internal::process_environment()("VESCOMM_TRANSPORT");
    std::string links =
        vescomm::internal::expects_tcp_links(transport != nullptr ? transport : "auto") ? "tcp"
                                                                                        : "rdma";
    add("--cores", cores, "COUNT", "cores of a host; 0: one for each rank")
        ->check(CLI::NonNegativeNumber);
    add("--nodes-per-host", nodes_per_host, "COUNT", "nodes that share those cores")
        ->check(CLI::PositiveNumber);
    add("--links", links, "tcp|rdma",
        "links between nodes: tcp or rdma; default: as on this machine")
        ->check(CLI::IsMember({"tcp", "rdma"}));
    add("--rails", rails, "COUNT", "network cards of a node; 0: one for each rank")
        ->check(CLI::NonNegativeNumber);
    std::vector<int> growing;
    add("--table", growing, "COUNT,...",
        "predicted times for these numbers of ranks, such as 8,64,512; --nodes is then\n"
        "the number of ranks of a node")
        ->delimiter(',')
        ->check(CLI::Range(1, 100000));
    bool as_json = false;
    add_flag("--json", as_json, "the table as JSON, for perf/growth.py")->needs("--table");
    add("--steps", question.steps_of, "RANK", "show the schedule of this rank");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
        std::fprintf(stderr, "vescomm-info: %s; see vescomm-info --help\n", error.what());
        return 2;
    }
    try {
        if (measure) {
            const std::string file =
                vescomm::internal::read_config(vescomm::internal::process_environment()).machine;
            vescomm::internal::measure_machine(file == "defaults" ? "" : file);
        } else if (!flights.empty())
            std::printf("%s", vescomm::internal::report_flights(flights).c_str());
        else if (markdown) vescomm::internal::show_variables_as_markdown();
        else if (question.collective.empty()) vescomm::internal::show_build();
        else {
            const vescomm::internal::Config config =
                vescomm::internal::read_config(vescomm::internal::process_environment());
            question.forced = config.algorithm;
            question.reproducible = config.reproducible == "yes";
            question.machine = vescomm::internal::machine_here(config, links == "tcp");
            question.machine.cores = cores;
            question.machine.nodes_per_host = nodes_per_host;
            if (rails >= 0) question.machine.rails = rails;
            if (growing.empty()) vescomm::internal::explain(question);
            else vescomm::internal::explain_growth(question, growing, as_json);
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "vescomm-info: %s\n", error.what());
        return 2;
    }
    return 0;
}
