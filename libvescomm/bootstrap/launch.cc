// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/launch.h"

#include <fmt/format.h>

#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>

#include "base/error.h"
#include "bootstrap/tcp_address.h"

namespace vescomm::internal {

namespace {

Error wrong(const std::string &text) {
    return Error(VESCOMM_ERROR_INVALID_ARGUMENT, text);
}

// The environment, parsed strictly.
class Variables {
public:
    explicit Variables(const std::function<const char *(const char *)> &getenv) : getenv_(getenv) {}

    // Returns an empty string if the variable is not set.
    std::string text(const char *name) const {
        const char *value = getenv_(name);
        return value == nullptr ? std::string() : std::string(value);
    }

    bool set(const char *name) const { return !text(name).empty(); }

    // Returns the first name that is set, or nullptr.
    const char *first_set(std::span<const char *const> names) const {
        for (const char *name : names)
            if (name != nullptr && set(name)) return name;
        return nullptr;
    }

    std::optional<int> number(const char *name, int min, int max) const {
        const std::string value = text(name);
        if (value.empty()) return std::nullopt;
        int number = 0;
        const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
        if (code != std::errc() || end != value.data() + value.size() || number < min ||
            number > max)
            throw wrong(
                fmt::format("{}={} is not a whole number from {} to {}", name, value, min, max));
        return number;
    }

private:
    const std::function<const char *(const char *)> &getenv_;
};

constexpr int any = std::numeric_limits<int>::max();

// The variables of one launcher. Lists are tried in order.
struct Launcher {
    const char *name;
    const char *rank;
    const char *ranks[2];
    const char *local_rank;
    // Variable that the launcher sets only in processes that it starts, not around them; nullptr:
    // `rank` is such a variable.
    const char *witness;
    // All ranks share this machine if this count equals `ranks` …
    const char *local_ranks;
    // … or if this count is 1.
    const char *nodes[2];
    const char *host_list[2];
    // Variables that distinguish jobs; equal on all ranks of a job.
    const char *identity[3];
};

// The order of detection.
constexpr Launcher launchers[] = {
    {.name = "vescomm",
     .rank = "VESCOMM_RANK",
     .ranks = {"VESCOMM_RANKS"},
     .local_rank = "LOCAL_RANK",
     .witness = nullptr,
     .local_ranks = nullptr,
     .nodes = {},
     .host_list = {},
     .identity = {"VESCOMM_ADDRESS"}},
    {.name = "torchrun",
     .rank = "RANK",
     .ranks = {"WORLD_SIZE"},
     .local_rank = "LOCAL_RANK",
     .witness = nullptr,
     .local_ranks = "LOCAL_WORLD_SIZE",
     .nodes = {},
     .host_list = {},
     // The restart count excludes processes that remain from the run before a restart.
     .identity = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"}},
    {.name = "Open MPI",
     .rank = "OMPI_COMM_WORLD_RANK",
     .ranks = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .witness = nullptr,
     .local_ranks = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .nodes = {},
     .host_list = {},
     .identity = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {.name = "Hydra",
     .rank = "PMI_RANK",
     .ranks = {"PMI_SIZE"},
     .local_rank = "MPI_LOCALRANKID",
     .witness = nullptr,
     .local_ranks = "MPI_LOCALNRANKS",
     .nodes = {},
     .host_list = {},
     // Hydra does not name the job: two jobs started in one directory at the same moment collide.
     .identity = {"PMI_PORT", "USER", "PWD"}},
    {.name = "Slurm",
     .rank = "SLURM_PROCID",
     // SLURM_NTASKS also counts tasks that a batch job may start, and may be larger.
     .ranks = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .local_rank = "SLURM_LOCALID",
     .witness = "SLURM_STEP_ID",
     .local_ranks = nullptr,
     .nodes = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
     .host_list = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"},
     .identity = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

bool started_by(const Launcher &launcher, const Variables &variables) {
    return variables.set(launcher.rank) && variables.first_set(launcher.ranks) != nullptr &&
           (launcher.witness == nullptr || variables.set(launcher.witness));
}

std::string identity_of(const Launcher &launcher, const Variables &variables) {
    std::string identity = launcher.name;
    for (const char *name : launcher.identity)
        if (name != nullptr) identity += fmt::format(";{}={}", name, variables.text(name));
    return identity;
}

// FNV-1a, because std::hash may differ between machines.
std::uint16_t derived_port(std::string_view identity) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const unsigned char byte : identity) hash = (hash ^ byte) * 0x100000001b3;
    return static_cast<std::uint16_t>(first_derived_port + hash % derived_ports);
}

bool all_local(const Launcher &launcher, const Variables &variables, int ranks) {
    if (launcher.local_ranks != nullptr &&
        variables.number(launcher.local_ranks, 1, any).value_or(0) == ranks)
        return true;
    const char *nodes = variables.first_set(launcher.nodes);
    return nodes != nullptr && variables.number(nodes, 1, any) == 1;
}

std::string find_host(const Launcher &launcher, const Variables &variables, int ranks) {
    // Preferred over the name of this machine, since no other machine needs to reach it.
    if (all_local(launcher, variables, ranks)) return "127.0.0.1";
    if (variables.set("MASTER_ADDR")) return variables.text("MASTER_ADDR");
    if (const char *name = variables.first_set(launcher.host_list)) {
        std::string host = first_slurm_host(variables.text(name));
        if (host.empty())
            throw wrong(
                fmt::format("{}={} is not a list of hosts; set VESCOMM_ADDRESS to the "
                            "\"host:port\" where rank 0 shall listen",
                            name, variables.text(name)));
        return host;
    }
    throw wrong(
        fmt::format("{} started {} ranks on several machines without saying where rank 0 "
                    "is; set VESCOMM_ADDRESS to the \"host:port\" where it shall listen",
                    launcher.name, ranks));
}

std::uint16_t find_port(const Launcher &launcher, const Variables &variables) {
    if (const auto port = variables.number("VESCOMM_PORT", 1, 65535))
        return static_cast<std::uint16_t>(*port);
    // torchrun's own store listens on MASTER_PORT itself. Port 65535 has no next port.
    if (const auto port = variables.number("MASTER_PORT", 1, 65534))
        return static_cast<std::uint16_t>(*port + 1);
    if (std::string_view(launcher.name) == "torchrun")
        throw wrong(
            "RANK and WORLD_SIZE are set, but MASTER_PORT is not; set it, or VESCOMM_PORT "
            "to a free port of rank 0's machine");
    return derived_port(identity_of(launcher, variables));
}

void find_meeting_place(const Launcher &launcher, const Variables &variables, Launch &launch) {
    if (variables.set("VESCOMM_ADDRESS")) {
        const std::string text = variables.text("VESCOMM_ADDRESS");
        const TcpAddress address = parse_tcp_address(text, "VESCOMM_ADDRESS=" + text);
        launch.host = address.host;
        launch.port = address.port;
        return;
    }
    if (std::string_view(launcher.name) == "vescomm")
        throw wrong(
            fmt::format("VESCOMM_RANK and VESCOMM_RANKS={} are set, but VESCOMM_ADDRESS is "
                        "not; set it to the \"host:port\" where rank 0 shall listen",
                        launch.ranks));
    if (std::string_view(launcher.name) == "torchrun" && !variables.set("MASTER_ADDR"))
        throw wrong(
            "RANK and WORLD_SIZE are set, but MASTER_ADDR is not; set it to the host of "
            "rank 0, or VESCOMM_ADDRESS to a \"host:port\" there");
    launch.host = find_host(launcher, variables, launch.ranks);
    launch.port = find_port(launcher, variables);
}

Launch read(const Launcher &launcher, const Variables &variables) {
    Launch launch;
    launch.source = launcher.name;
    const char *ranks_name = variables.first_set(launcher.ranks);
    launch.ranks = *variables.number(ranks_name, 1, any);
    launch.rank = *variables.number(launcher.rank, 0, any);
    if (launch.rank >= launch.ranks)
        throw wrong(fmt::format("{}={} does not exist among {}={}; ranks count from 0",
                                launcher.rank, launch.rank, ranks_name, launch.ranks));
    launch.local_rank = variables.number(launcher.local_rank, 0, any).value_or(-1);
    if (launch.ranks == 1) return launch;

    find_meeting_place(launcher, variables, launch);
    launch.secret = variables.text("VESCOMM_SECRET");
    if (launch.secret.empty()) {
        launch.secret = "derived;" + identity_of(launcher, variables);
        launch.secret_derived = true;
    }
    if (std::string_view(launcher.name) == "vescomm" && launch.rank == 0)
        launch.listen_descriptor =
            variables.number("VESCOMM_LISTEN_DESCRIPTOR", 0, any).value_or(-1);
    return launch;
}

// An incomplete pair of VESCOMM_ variables is a mistake; an incomplete pair of other variables may
// be a coincidence.
void check_pairs(const Variables &variables) {
    if (variables.set("VESCOMM_RANK") != variables.set("VESCOMM_RANKS")) {
        const bool rank = variables.set("VESCOMM_RANK");
        throw wrong(fmt::format("{}={} is set, but {} is not; set both, or neither",
                                rank ? "VESCOMM_RANK" : "VESCOMM_RANKS",
                                variables.text(rank ? "VESCOMM_RANK" : "VESCOMM_RANKS"),
                                rank ? "VESCOMM_RANKS" : "VESCOMM_RANK"));
    }
}

}  // namespace

Launch read_launch(const std::function<const char *(const char *)> &getenv) {
    const Variables variables(getenv);
    check_pairs(variables);
    const Launcher *winner = nullptr;
    std::vector<std::string> ignored;
    for (const Launcher &launcher : launchers) {
        if (!started_by(launcher, variables)) continue;
        if (winner == nullptr) winner = &launcher;
        else ignored.push_back(launcher.name);
    }
    if (winner == nullptr && variables.set("PMIX_RANK"))
        throw wrong(
            fmt::format("PMIX_RANK={} says that a PMIx launcher started this process, but "
                        "nothing says how many ranks there are; set VESCOMM_RANK, "
                        "VESCOMM_RANKS and VESCOMM_ADDRESS",
                        variables.text("PMIX_RANK")));
    Launch launch;
    if (winner != nullptr) launch = read(*winner, variables);
    else launch.source = "nobody";
    launch.ignored = std::move(ignored);
    return launch;
}

std::string first_slurm_host(std::string_view list) {
    std::string host;
    for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
        if (list[i] == ']') return {};
        if (list[i] != '[') {
            host += list[i];
            continue;
        }
        const std::size_t end = list.find(']', i);
        const std::size_t first_end = list.find_first_of(",-]", i);
        if (end == std::string_view::npos || first_end == i + 1) return {};
        const std::string_view first = list.substr(i + 1, first_end - i - 1);
        if (first.find_first_not_of("0123456789") != std::string_view::npos) return {};
        host += first;
        i = end;
    }
    return host;
}

}  // namespace vescomm::internal
