// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "perf/case/collectives.h"
#include "perf/case/ops.h"
#include "perf/run/exit_codes.h"
#include "perf/run/implementations.h"
#include "perf/run/option_values.h"
#include "vescomm/vescomm.h"

namespace vescomm::perf {
namespace {

constexpr const char *what =
    "Measures collectives of vescomm and of other libraries in turns, and verifies the data of\n"
    "timed operations, on host memory or on the memory of GPUs. Options, columns and exit codes\n"
    "are those of nccl-tests, as far as they apply.";

// Values of options as CLI11 reads them.
struct Given {
    Options options;
    std::string min = "32M";
    std::string max;
    std::string step;
    double factor = 0;
    std::string skew = "0";
    std::string sources = "new";
    std::string memory = "host";
    int average = 3;
    int check = 1;
    int timestamps = 0;
    int statistics = 0;
    int costs = 0;
    bool is_private = false;
    bool version = false;
    // Options of nccl-tests without a meaning here. Only the value without effect is accepted.
    int devices = 1, blocking = 0, null_stream = 0, graph = 0, registered = 0;
};

std::string make_column_help() {
    return "\nColumns:\n"
           "  size, count         bytes and elements of the whole buffer\n"
           "  type, redop, root   type of the elements; operator, none; root, -1 if there is none\n"
           "  time                us: median of the iterations, on the slowest rank\n"
           "  algbw, busbw        GB/s (10^9 bytes): size / time; bytes of the busiest rank / "
           "time\n"
           "  #wrong              wrong elements of the results; N/A with -c 0\n"
           "  min, p99            us: fastest iteration, 99th percentile\n"
           "  place               with --memory device: out: out of place, in: in place\n"
           "  impl, ratio         implementation; its time over that of the first one\n";
}

std::string make_footer() {
    std::string text = "Collectives:\n";
    for (const Collective &row : collectives())
        text += fmt::format("  {:20}{}\n", row.name, row.summary);
    for (const bool on_device : {false, true}) {
        text += on_device ? "\nImplementations with --memory device:\n" : "\nImplementations:\n";
        for (const ImplementationRow &row : implementation_rows())
            if (row.on_device == on_device)
                text += fmt::format("  {:20}{}\n", row.name, row.summary);
    }
    text += make_column_help();
    return text +
           "\nShards (--ragged):\n"
           "  equal             equal shards\n"
           "  linear            rank r in proportion to r + 1\n"
           "  zipf:S            rank r in proportion to 1 / (r + 1)^S\n"
           "  one-owner:F       rank 0 has the share F, the other ranks equal parts of the rest\n"
           "  random:SEED       at random, the same for the same seed\n"
           "  file:PATH         in proportion to the numbers in a file, one for each rank\n\n"
           "Sizes are bytes of the whole buffer: 65536, 64K, 64KiB, 1.5M, 2G (powers of two).\n\n"
           "Examples:\n"
           "  vescomm_perf --ranks 4 -b 64 -e 64M -f 16\n"
           "  vescomm_perf --ranks 2 --impl vescomm,limit,mpi -b 64K -e 16M -f 16 -J run.json\n"
           "  vescomm_perf --collective reduce_scatter_v -d bf16 --f32-output --ragged zipf:1\n"
           "  vescomm_perf --hosts 2 --ranks 4 -b 1M -e 1M        (as root)\n"
           "  torchrun --no-python --nproc-per-node 4 vescomm_perf -b 1M -e 1M\n"
           "  vescomm_perf --memory device --ranks 8 --impl vescomm,nccl-padded,nccl-grouped\n\n"
           "VESCOMM_PERF_MIN_BW: GB/s that the average bus bandwidth must reach, less a tenth.\n\n"
           "Exit code: 0 measured; 1 internal; 3 an implementation failed; 4 it took longer than\n"
           "--timeout; 5 no implementation has the operation; 6 wrong usage; 7 wrong results, or\n"
           "bandwidth below the floor.";
}

void add_data(CLI::App &app, Given &given) {
    Options &options = given.options;
    const auto group = "What is measured";
    app.add_option("--collective", options.collectives, "See below (default all_gather_v).")
        ->delimiter(',')
        ->option_text("NAME,...")
        ->group(group);
    app.add_option("-d,--datatype", options.types,
                   "f32, f64, bf16, f16, f8e4m3, f8e5m2, i8 ... u64, bool, c64, c128, or as\n"
                   "nccl-tests calls them (f32).")
        ->delimiter(',')
        ->option_text("TYPE,...")
        ->group(group);
    app.add_option("-o,--op", options.ops,
                   "How contributions are combined: sum, prod, min, max, avg, band, bor, bxor,\n"
                   "land, lor, lxor (sum). Types without an operator are left out.")
        ->delimiter(',')
        ->option_text("OP,...")
        ->group(group);
    app.add_option("-r,--root", options.root, "Root of broadcast, reduce, gather_v, scatter_v (0).")
        ->option_text("RANK")
        ->group(group);
    app.add_option("--ragged", options.ragged, "Sizes of the shards, see below (equal).")
        ->option_text("SHAPE")
        ->group(group);
    app.add_option("--block", options.block, "Elements that stay on one rank (1).")
        ->option_text("ELEMENTS")
        ->group(group);
    app.add_option("--tensors", options.tensors,
                   "Tensors in the buffer: one operation for libraries that move fused\n"
                   "buffers, one for each tensor for other libraries (1).")
        ->option_text("K")
        ->group(group);
    app.add_option("--memory", given.memory,
                   "host, or device: the memory of GPUs, with a stream for each rank (host).")
        ->option_text("host|device")
        ->group(group);
    app.add_option("--place", options.places,
                   "Device memory: results out of place, in place, or both (out,in).")
        ->delimiter(',')
        ->option_text("out|in|out,in")
        ->group(group);
    app.add_flag("--shared", options.shared,
                 "all_gather_v: one result for the ranks of a node, gathered from a source.")
        ->group(group);
    app.add_flag("--private", given.is_private,
                 "all_gather_v: a result for each rank, in place (default).")
        ->group(group);
    app.add_flag("--f32-output", options.wide_output, "reduce_scatter_v: f32 results of bf16.")
        ->group(group);
}

void add_sizes(CLI::App &app, Given &given) {
    const auto group = "Sizes";
    const auto add = [&](const char *name, auto &value, const char *help, const char *unit) {
        app.add_option(name, value, help)->option_text(unit)->group(group);
    };
    add("-b,--minbytes", given.min, "Smallest size (32M).", "BYTES");
    add("-e,--maxbytes", given.max, "Largest size (as --minbytes).", "BYTES");
    add("-i,--stepbytes", given.step, "Increment from one size to the next (1M).", "BYTES");
    add("-f,--stepfactor", given.factor, "Factor from one size to the next instead.", "FACTOR");
}

void add_repetition(CLI::App &app, Given &given) {
    Options &options = given.options;
    const auto group = "How it is measured";
    const auto add = [&](const char *name, auto &value, const char *help, const char *unit) {
        app.add_option(name, value, help)->option_text(unit)->group(group);
    };
    add("-n,--iters", options.iterations,
        "Timed iterations, in all rounds together (a quarter of a second).", "COUNT");
    add("-w,--warmup_iters", options.warm_up, "Untimed iterations in each turn (chosen by time).",
        "COUNT");
    add("-m,--agg_iters", options.operations,
        "Operations in an iteration, one by one; on device memory all are put on the\n"
        "stream before one wait (1).",
        "COUNT");
    add("--rounds", options.rounds, "Turns of each implementation at each size (5).", "COUNT");
    add("-a,--average", given.average,
        "Time of an iteration: 0 first rank, 1 mean, 2 fastest, 3 slowest rank (3).", "0|1|2|3");
    add("-c,--check", given.check, "Verify the last timed result of each turn (1).", "0|1");
    add("-K,--skip", options.skip, "Leave out the first timed iterations of a turn (0).", "COUNT");
    add("--sources", given.sources,
        "When sources are written: new: before each iteration; kept: once in each turn,\n"
        "as benchmarks of OSU do (new).",
        "new|kept");
    add("--skew", given.skew, "Delay of one rank, the last one if none is named.", "US[:RANK]");
    app.add_flag("--overlap", options.overlap,
                 "Measure again with computation between start() and wait(), as long as\n"
                 "the operation, and report the part of the operation that is hidden.")
        ->group(group);
    add("-T,--timeout", options.timeout_seconds, "Give up on a turn after this long (300 s).",
        "SECONDS");
}

void add_ranks(CLI::App &app, Given &given) {
    Options &options = given.options;
    const auto group = "Participants";
    app.add_option("--impl", options.implementations,
                   "Implementations, in turns; see below (vescomm). The others are compared\n"
                   "with the first.")
        ->delimiter(',')
        ->option_text("NAME,...")
        ->group(group);
    app.add_option("--ranks", options.ranks,
                   "Processes on this machine (the ranks that a launcher started, or one\n"
                   "for each core; on device memory one for each GPU).")
        ->option_text("COUNT")
        ->check(CLI::Range(1, 100000))
        ->group(group);
    app.add_option("-t,--nthreads", options.threads,
                   "Ranks in each process, as threads, on device memory (1).")
        ->option_text("COUNT")
        ->group(group);
    app.add_option("--hosts", options.hosts,
                   "Distribute the ranks over emulated hosts (network namespaces; as root).")
        ->option_text("COUNT")
        ->group(group);
    app.add_option("--link", options.link_gbits,
                   "Gbit/s that each emulated host may send (no limit).")
        ->option_text("GBITS")
        ->group(group);
    app.add_option("--bind", options.bind,
                   "core: bind each rank to its own core, if there are enough (core).")
        ->option_text("core|none")
        ->group(group);
}

void add_outputs(CLI::App &app, Given &given) {
    const auto group = "Output";
    app.add_option("-J,--json", given.options.json, "Write the results (schema vescomm-perf/1).")
        ->option_text("FILE")
        ->group(group);
    const auto add = [&](const char *name, int &value, const char *help) {
        app.add_option(name, value, help)->option_text("0|1")->group(group);
    };
    add("-S,--report_timestamps", given.timestamps, "Time at which each line was printed (0).");
    add("-I,--iter_stats", given.statistics, "Largest time and spread of the iterations (0).");
    add("-C,--report_cputime", given.costs, "One-time costs, and the duration of start() (0).");
    app.add_flag("--version", given.version, "Print the version and exit.")->group(group);
}

struct Meaningless {
    const char *option;
    int Given::*value;
    int taken;
    const char *why;
};

constexpr Meaningless meaningless[] = {
    {"-g,--ngpus", &Given::devices, 1, "a rank is a process here; see --ranks"},
    {"-z,--blocking", &Given::blocking, 0, "iterations wait as -m says"},
    {"-y,--stream_null", &Given::null_stream, 0,
     "on device memory each rank has a stream of its own"},
    {"-G,--cudagraph", &Given::graph, 0, "graphs are not measured; see -m"},
    {"-R,--local_register", &Given::registered, 0, "memory is always registered; see -C"},
};

void add_meaningless(CLI::App &app, Given &given) {
    for (const Meaningless &row : meaningless)
        app.add_option(row.option, given.*row.value,
                       fmt::format("Only {}: {}.", row.taken, row.why))
            ->option_text(std::to_string(row.taken))
            ->group("Options of nccl-tests without a meaning here");
}

[[noreturn]] void refuse(const std::string &sentence) {
    throw std::invalid_argument(sentence);
}

void check_range(const char *option, std::int64_t value, std::int64_t min, std::int64_t max) {
    if (value < min || value > max)
        refuse(fmt::format("{} {}: give a number from {} to {}", option, value, min, max));
}

// Checks the options that have a meaning on one kind of memory only.
void check_memory(const Options &options) {
    for (const std::string &place : options.places)
        if (place != "in" && place != "out")
            refuse(fmt::format("--place {}: there is out and in", place));
    if (!options.on_device) {
        if (options.threads != 1)
            refuse(fmt::format("-t,--nthreads {}: on host memory a rank is a process; see --ranks",
                               options.threads));
        if (options.places.size() != 2)
            refuse("--place: on host memory each collective has its own; give --memory device");
        return;
    }
    const auto no = [](bool given, const char *sentence) {
        if (given) refuse(std::string("--memory device: ") + sentence);
    };
    no(options.shared, "--shared shares host memory");
    no(options.wide_output, "--f32-output exists on host memory only");
    no(options.tensors > 1, "--tensors exists on host memory only");
    no(options.overlap, "--overlap computes on the host");
    no(options.hosts > 1, "emulated hosts share GPUs; leave out --hosts");
    if (options.threads > 1 && (options.ranks == 0 || options.ranks % options.threads != 0))
        refuse(fmt::format("--nthreads {}: give --ranks, a multiple of it", options.threads));
}

Options finish(Given &given) {
    Options &options = given.options;
    if (given.memory != "host" && given.memory != "device")
        refuse(fmt::format("--memory {}: there is host and device", given.memory));
    options.on_device = given.memory == "device";
    for (const Meaningless &row : meaningless)
        if (given.*row.value != row.taken)
            refuse(fmt::format("{} {}: {}", row.option, given.*row.value, row.why));
    for (std::string &name : options.collectives) name = find_collective(name).name;
    for (std::string &name : options.types) name = find_type(name).name;
    for (const std::string &op : options.ops) find_op(op);
    for (const std::string &name : options.implementations)
        find_implementation(name, options.on_device);
    for (std::size_t i = 0; i < options.implementations.size(); ++i)
        if (std::ranges::count(options.implementations, options.implementations[i]) > 1)
            refuse(fmt::format("--impl: {} is named twice", options.implementations[i]));
    if (options.shared && given.is_private) refuse("--shared and --private exclude each other");
    check_range("--iters", options.iterations, 0, 1'000'000);
    check_range("--warmup_iters", options.warm_up, -1, 1'000'000);
    check_range("--agg_iters", options.operations, 1, 1'000'000);
    check_range("--rounds", options.rounds, 3, 1000);
    check_range("--skip", options.skip, 0, 1'000'000);
    check_range("--average", given.average, 0, 3);
    check_range("--ranks", options.ranks, 0, 4096);
    check_range("--nthreads", options.threads, 1, 4096);
    check_range("--hosts", options.hosts, 1, 64);
    check_range("--block", options.block, 1, std::int64_t{1} << 40);
    check_range("--tensors", options.tensors, 1, 1'000'000);
    if (!(options.timeout_seconds > 0)) refuse("--timeout: give more than 0 seconds");
    if (!(options.link_gbits >= 0 && options.link_gbits <= 1e3))
        refuse(fmt::format("--link {}: give Gbit/s, from 0 to 1000", options.link_gbits));
    if (options.link_gbits > 0 && options.hosts < 2)
        refuse("--link limits emulated hosts: give --hosts, at least 2");
    if (options.hosts > 1 && options.ranks < options.hosts)
        refuse(fmt::format("--hosts {} needs --ranks, at least as many", options.hosts));
    if (given.sources != "new" && given.sources != "kept")
        refuse(fmt::format("--sources {}: there is new and kept", given.sources));
    options.keep_sources = given.sources == "kept";
    options.average = static_cast<Average>(given.average);
    if (options.bind != "core" && options.bind != "none")
        refuse(fmt::format("--bind {}: there is core and none", options.bind));
    options.check = given.check != 0;
    options.timestamps = given.timestamps != 0;
    options.statistics = given.statistics != 0;
    options.costs = given.costs != 0;
    options.sizes = make_sizes(given.min, given.max, given.step, given.factor);
    parse_skew(given.skew, options);
    check_memory(options);
    return options;
}

}  // namespace

std::variant<Options, OptionsAnswer> read_options(int argc, const char *const *argv) {
    CLI::App app(what, "vescomm_perf");
    app.footer(make_footer());
    Given given;
    given.options.arguments.assign(argv + 1, argv + argc);
    add_data(app, given);
    add_sizes(app, given);
    add_repetition(app, given);
    add_ranks(app, given);
    add_outputs(app, given);
    add_meaningless(app, given);
    const auto complain = [](const char *sentence) {
        return OptionsAnswer{static_cast<int>(ExitCode::usage),
                             fmt::format("vescomm_perf: {}; see vescomm_perf --help\n", sentence)};
    };
    try {
        app.parse(argc, argv);
        if (given.version)
            return OptionsAnswer{0, fmt::format("vescomm_perf {}\n", vescomm_get_version())};
        return finish(given);
    } catch (const CLI::CallForHelp &) {
        return OptionsAnswer{0, app.help()};
    } catch (const CLI::ParseError &error) {
        return complain(error.what());
    } catch (const std::invalid_argument &error) {
        return complain(error.what());
    }
}

}  // namespace vescomm::perf
