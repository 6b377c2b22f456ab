// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>

#include "base/error.h"
#include "bootstrap/tcp_address.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

namespace {

constexpr const char *what =
    "Starts the ranks of a vescomm job on this machine, and ends them together.\n\n"
    "Each rank gets the variables VESCOMM_RANK, VESCOMM_RANKS, VESCOMM_ADDRESS and\n"
    "VESCOMM_SECRET, and those of torchrun (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,\n"
    "MASTER_ADDR, MASTER_PORT). Each line of output begins with the rank. Standard input goes to\n"
    "rank 0. When a rank fails, the others have one second to report it; then they get SIGTERM,\n"
    "and SIGKILL after the grace time. With --min-ranks the others go on. Signals are forwarded;\n"
    "after SIGINT and SIGTERM, SIGKILL follows after the grace time, or at the second signal.";

constexpr const char *examples =
    "Examples:\n"
    "  vescomm-run -n 4 ./train --layers 12          four ranks; --layers belongs to ./train\n"
    "  vescomm-run -n 8 --bind core ./train          each rank on its share of the cores\n"
    "  vescomm-run -n 6 --nodes 3,1,2 ./test         as if on three machines\n"
    "  vescomm-run -n 8 --ranks 16 --first-rank 8 --address head:29501 --secret-file s ./train\n"
    "                                                the second of two machines with 8 ranks each\n"
    "\n"
    "Exit code: that of the first rank that failed (128 + n when signal n ended it), else 0; with\n"
    "--min-ranks, 0 if enough ranks succeeded. A rank that got SIGKILL after signal n has failed\n"
    "with 128 + n.\n"
    "2: wrong usage. 126, 127: PROGRAM cannot be run, or does not exist.";

struct Given {
    RunOptions options;
    std::string secret_file;
    std::string node;
    std::vector<int> nodes;
    std::string bind = "none";
    bool no_prefix = false;
    bool version = false;
};

// The usage line of CLI11 does not show that a program and its arguments follow.
struct Help : CLI::Formatter {
    std::string make_usage(const CLI::App *, std::string) const override {
        return "\nUsage: vescomm-run -n COUNT [OPTIONS] PROGRAM [ARGUMENTS...]\n";
    }
};

[[noreturn]] void wrong(const std::string &text) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, text);
}

std::string read_secret(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) wrong(fmt::format("--secret-file {} cannot be read", path));
    std::string secret{std::istreambuf_iterator<char>(file), {}};
    // Editors end files with a newline, and variables of the environment with a zero byte.
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
    if (secret.empty()) wrong(fmt::format("--secret-file {} is empty", path));
    if (secret.find('\0') != std::string::npos)
        wrong(
            fmt::format("--secret-file {} holds a zero byte, which no variable can; write the "
                        "secret as text, such as: openssl rand -hex 32",
                        path));
    return secret;
}

void check_machines(Given &given) {
    RunOptions &options = given.options;
    if (options.ranks == 0) options.ranks = options.first_rank + options.local_ranks;
    if (options.first_rank > options.ranks - options.local_ranks)
        wrong(fmt::format("--first-rank {} and -n {} make more than --ranks {}", options.first_rank,
                          options.local_ranks, options.ranks));
    const bool several = options.ranks != options.local_ranks;
    if (several && options.address.empty())
        wrong("several machines need --address HOST:PORT, the same on all: where rank 0 listens");
    if (!options.address.empty()) {
        const TcpAddress address =
            parse_tcp_address(options.address, "--address " + options.address);
        // MASTER_PORT is the next port.
        if (address.port == 65535) wrong("--address needs a port below 65535");
    }
    if (!given.secret_file.empty()) options.secret = read_secret(given.secret_file);
    else if (const char *inherited = std::getenv("VESCOMM_SECRET"); several && inherited != nullptr)
        options.secret = inherited;
    if (several && options.secret.empty())
        wrong(
            "several machines need --secret-file FILE, or VESCOMM_SECRET: the same secret on all "
            "(one can be made by: openssl rand -hex 32)");
}

void check_min_ranks(const RunOptions &options) {
    if (options.min_ranks > options.local_ranks)
        wrong(fmt::format("--min-ranks {} is more than the {} ranks of -n", options.min_ranks,
                          options.local_ranks));
}

void name_nodes(Given &given) {
    RunOptions &options = given.options;
    if (!given.node.empty())
        options.nodes.assign(static_cast<std::size_t>(options.local_ranks), given.node);
    if (given.nodes.empty()) return;
    for (const int ranks : given.nodes) {
        // Names must differ between machines, too, so they contain the first rank of the node.
        const std::string name =
            fmt::format("emulated-{}", options.first_rank + options.nodes.size());
        if (ranks < 1 || ranks > options.local_ranks) wrong("--nodes takes numbers from 1 to -n");
        options.nodes.insert(options.nodes.end(), static_cast<std::size_t>(ranks), name);
    }
    if (options.nodes.size() != static_cast<std::size_t>(options.local_ranks))
        wrong(fmt::format("--nodes has {} ranks in all, -n says {}", options.nodes.size(),
                          options.local_ranks));
}

void add_options(CLI::App &app, Given &given) {
    const int max = std::numeric_limits<int>::max();
    RunOptions &options = given.options;
    app.add_option("-n,--local-ranks", options.local_ranks, "Ranks to start on this machine.")
        ->option_text("COUNT")
        ->check(CLI::Range(1, 100000));
    app.add_option("--bind", given.bind,
                   "core: split this machine's cores among the ranks.\n"
                   "none (default): leave it to the operating system.")
        ->option_text("none|core")
        ->check(CLI::IsMember({"none", "core"}));
    app.add_flag("--no-prefix", given.no_prefix, "Do not put the rank before each line.");
    app.add_option("--grace", options.grace_seconds,
                   "Time between SIGTERM and SIGKILL when a rank failed, and between a\n"
                   "forwarded SIGINT or SIGTERM and SIGKILL (default 5 s).")
        ->option_text("SECONDS")
        ->check(CLI::Range(0.0, 86400.0));
    app.add_option("--min-ranks", options.min_ranks,
                   "For programs that go on without failed ranks: end the others only\n"
                   "when fewer than COUNT ranks of this machine have not failed.\n"
                   "Default: all ranks are needed.")
        ->option_text("COUNT")
        ->check(CLI::Range(1, 100000));
    app.add_option("--ranks", options.ranks, "Several machines: ranks of the whole job.")
        ->option_text("COUNT")
        ->check(CLI::Range(1, max));
    app.add_option("--first-rank", options.first_rank, "Several machines: first rank on this one.")
        ->option_text("RANK")
        ->check(CLI::Range(0, max));
    app.add_option("--address", options.address,
                   "Address at which rank 0 listens. MASTER_PORT becomes the next port.\n"
                   "Default: a free port of this machine, for this machine only.")
        ->option_text("HOST:PORT");
    app.add_option("--secret-file", given.secret_file,
                   "Several machines: file with the shared secret.\n"
                   "Default: VESCOMM_SECRET; for one machine a random one.")
        ->option_text("FILE");
    auto *node = app.add_option("--node", given.node,
                                "Name of this machine (VESCOMM_NODE). Ranks with the same\n"
                                "name share memory.")
                     ->option_text("NAME");
    app.add_option("--nodes", given.nodes,
                   "For tests: emulate several machines, with these numbers of\n"
                   "ranks.")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->option_text("COUNT,...")
        ->excludes(node);
    app.add_flag("--version", given.version, "Print the version and exit.");
}

}  // namespace

std::variant<RunOptions, RunAnswer> read_run_options(int argc, const char *const *argv) {
    CLI::App app(what, "vescomm-run");
    app.formatter(std::make_shared<Help>());
    app.footer(examples);
    Given given;
    add_options(app, given);
    // The first word that is not an option is PROGRAM; the rest are its arguments.
    app.prefix_command();
    try {
        app.parse(argc, argv);
        if (given.version)
            return RunAnswer{0, fmt::format("vescomm-run {}.{}.{}\n", VESCOMM_VERSION_MAJOR,
                                            VESCOMM_VERSION_MINOR, VESCOMM_VERSION_PATCH)};
        given.options.program = app.remaining();
        if (!given.options.program.empty() && given.options.program.front() == "--")
            given.options.program.erase(given.options.program.begin());
        else if (!given.options.program.empty() && given.options.program.front().starts_with('-'))
            wrong(fmt::format("there is no option {}", given.options.program.front()));
        if (given.options.local_ranks == 0) wrong("-n COUNT is missing: how many ranks to start");
        if (given.options.program.empty()) wrong("PROGRAM is missing: what to start");
        check_machines(given);
        check_min_ranks(given.options);
        name_nodes(given);
    } catch (const CLI::CallForHelp &) {
        return RunAnswer{0, app.help()};
    } catch (const CLI::ParseError &error) {
        return RunAnswer{2, fmt::format("vescomm-run: {}; see vescomm-run --help\n", error.what())};
    } catch (const Error &error) {
        return RunAnswer{2, fmt::format("vescomm-run: {}; see vescomm-run --help\n", error.what())};
    }
    given.options.bind_to_cores = given.bind == "core";
    given.options.prefix = !given.no_prefix;
    return given.options;
}

}  // namespace vescomm::internal
