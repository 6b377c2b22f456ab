// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/machine_exchange.h"

#include <fstream>
#include <map>
#include <string_view>

#include "base/error.h"
#include "observe/log.h"
#include "topology/cores.h"
#include "topology/machine_file.h"
#include "topology/node_name.h"
#include "transport/transports.h"

namespace vescomm::internal {

namespace {

// The text of a file, up to more than any machine file has; empty: the file cannot be read.
std::string read_text(const std::string &name) {
    constexpr std::size_t max = 64 << 10;
    std::ifstream file(name, std::ios::binary);
    std::string text(max, '\0');
    file.read(text.data(), static_cast<std::streamsize>(max));
    text.resize(static_cast<std::size_t>(file.gcount()));
    return text;
}

// The measured constants that `config` selects, checked.
std::optional<MachineFile> measured(const Config &config) {
    if (config.machine == "defaults") return std::nullopt;
    if (!config.machine.empty()) {
        const auto file = read_machine_file(config.machine, "VESCOMM_MACHINE=");
        if (!file)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "VESCOMM_MACHINE=" + config.machine +
                            " cannot be read, or is empty; vescomm-info --measure writes one");
        return file;
    }
    const std::string name = own_machine_file(process_environment());
    if (name.empty()) return std::nullopt;
    try {
        auto file = read_machine_file(name);
        if (!file || is_of_this_machine(*file)) return file;
        log(LogLevel::warn, "machine", 0, 0,
            name + " was measured on " + std::to_string(file->cores) + " cores of " +
                file->processor + ", not on this machine; it is left out");
    } catch (const Error &error) {
        log(LogLevel::warn, "machine", 0, 0, std::string(error.what()) + "; it is left out");
    }
    return std::nullopt;
}

// Removes the first line of the text and returns it.
std::string_view take_line(std::string_view &text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
}

}  // namespace

std::optional<MachineFile> read_machine_file(const std::string &name, const std::string &variable) {
    const std::string text = read_text(name);
    if (text.empty()) return std::nullopt;
    return parse_machine_file(text, variable + name);
}

bool is_of_this_machine(const MachineFile &file) {
    return file.processor == processor_name() && file.cores == processor_cores();
}

std::string own_machine_file(const Environment &environment) {
    const char *cache = environment("XDG_CACHE_HOME"), *home = environment("HOME");
    std::string folder;
    if (cache != nullptr && *cache == '/') folder = cache;
    else if (home != nullptr && *home == '/') folder = std::string(home) + "/.cache";
    else return {};
    return machine_file_name(folder + "/vescomm", processor_name(), processor_cores());
}

bool expects_tcp(const Config &config) {
    return expects_tcp_links(config.encryption == "yes" ? "tcp" : config.transport);
}

std::string machine_text(int rank, const Config &config) {
    std::string text = usable_cores() + "\n" + system_host_name() + "\n";
    if (rank > 0) return text;
    text += expects_tcp(config) ? "tcp\n" : "rdma\n";
    const auto file = measured(config);
    return file ? text + to_text(*file) : text;
}

Machine machine_here(const Config &config, bool tcp) {
    Machine machine = tcp ? Machine{}.with_tcp() : Machine{};
    if (const auto file = measured(config)) apply(*file, tcp, machine);
    return machine;
}

std::vector<std::string> texts_of_members(std::span<const std::string> texts,
                                          std::span<const int> members) {
    std::string_view constants = texts.front();
    take_line(constants);
    take_line(constants);
    std::vector<std::string> all;
    for (const int member : members) {
        std::string_view text = texts[static_cast<std::size_t>(member)];
        all.emplace_back(take_line(text)) += '\n';
        all.back().append(take_line(text)) += '\n';
        if (all.size() == 1) all.back() += constants;
    }
    return all;
}

MachineExchange machine_exchange(const Nodes &nodes, std::span<const std::string> texts) {
    struct Host {
        std::vector<std::string> cores;  // of its ranks
        std::vector<int> nodes;
    };
    std::map<std::string_view, Host> hosts;
    MachineExchange result;
    for (int node = 0; node < nodes.count(); ++node) {
        std::vector<std::string> of_node;
        for (const int rank : nodes.members(node)) {
            std::string_view text = texts[static_cast<std::size_t>(rank)];
            of_node.emplace_back(take_line(text));
            Host &host = hosts[take_line(text)];
            host.cores.push_back(of_node.back());
            if (host.nodes.empty() || host.nodes.back() != node) host.nodes.push_back(node);
        }
        result.cores.push_back(count_cores(of_node));
    }
    std::string_view text = texts.front();
    take_line(text);
    take_line(text);
    const bool tcp = take_line(text) == "tcp";
    Machine &machine = result.machine;
    if (tcp) machine = machine.with_tcp();
    if (!text.empty()) apply(parse_machine_file(text, "the machine file of rank 0"), tcp, machine);
    // The model assumes equal hosts. It describes the host with the fewest cores for each rank.
    double max_ranks_per_core = 0;
    for (const auto &[name, host] : hosts) {
        const int cores = count_cores(host.cores);
        const double ranks_per_core = static_cast<double>(host.cores.size()) / cores;
        if (ranks_per_core <= max_ranks_per_core) continue;
        max_ranks_per_core = ranks_per_core;
        machine.cores = ranks_per_core > 1 ? cores : 0;
        machine.nodes_per_host = static_cast<int>(host.nodes.size());
    }
    return result;
}

}  // namespace vescomm::internal
