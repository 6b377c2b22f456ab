// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/connect.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/system.h"
#include "bootstrap/launch.h"
#include "bootstrap/tcp_control.h"
#include "comm/invitation.h"
#include "observe/log.h"
#include "topology/node_name.h"
#include "transport/transports.h"

namespace vescomm {

namespace {

constexpr std::size_t secret_bytes = 32;
// Far more than addresses of interfaces and a secret can be.
constexpr std::uint64_t largest_invitation = 64 * 1024;

struct Settings {
    Config config;
    // What is wrong with them. The others are told once all have met: they would wait in vain.
    std::optional<Error> refused;
};

Settings configure(const CommOptions &options) {
    Settings settings;
    try {
        Config config = read_config(process_environment());
        set_log_filter(config.log);
        if (options.timeout_seconds < 0)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "timeout_seconds is " + std::to_string(options.timeout_seconds) +
                            "; give seconds above 0, or 0 for the default");
        if (options.timeout_seconds > 0) config.timeout_seconds = options.timeout_seconds;
        if (!options.node.empty()) config.node = options.node;
        if (options.reproducible) config.reproducible = "yes";
        if (config.node.empty()) config.node = system_node_name();
        settings.config = config;
    } catch (const Error &error) {
        settings.refused = error;
    }
    return settings;
}

void require_rank(int rank, int ranks) {
    if (ranks < 1 || rank < 0 || rank >= ranks)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "rank is " + std::to_string(rank) + " and ranks " + std::to_string(ranks) +
                        "; ranks must be at least 1, and rank from 0 to ranks - 1");
}

std::shared_ptr<Communicator> connect(TcpControlOptions control, const Settings &settings) {
    const Config &config = settings.config;
    // One rank speaks for all: launchers give them the same environment.
    if (control.rank == 0)
        for (const std::string &unknown : unknown_variables(process_variable_names()))
            log(LogLevel::warn, "config", control.rank, control.ranks, unknown);
    control.silence_seconds = config.silence_seconds;
    // Several signs of life before anyone is given up, however short the silence.
    control.heartbeat_seconds = std::min(1.0, config.silence_seconds / 5);
    std::unique_ptr<Control> connected =
        connect_tcp_control(control, Deadline::after(config.timeout_seconds));
    if (settings.refused) {
        connected->fail(settings.refused->status,
                        "rank " + std::to_string(control.rank) +
                            " could not make its communicator: " + settings.refused->what());
        throw Error(*settings.refused);
    }
    const TransportOptions options{config.transport, config.encryption == "yes"};
    const auto make = [&options](const Nodes &nodes, Control &plane, Failure &failure,
                                 std::function<void()> on_signal, Deadline deadline) {
        return make_transports(nodes, plane, failure, std::move(on_signal), deadline, options);
    };
    return Communicator::create(std::move(connected), config.node, config, make);
}

}  // namespace

std::shared_ptr<Communicator> connect_explicitly(int rank, int ranks, const std::string &address,
                                                 const std::string &secret,
                                                 const CommOptions &options) {
    require_rank(rank, ranks);
    TcpControlOptions control;
    control.rank = rank;
    control.ranks = ranks;
    if (ranks > 1) {
        control.addresses = {parse_tcp_address(address, "address \"" + address + "\"")};
        control.secret = secret;
        if (secret.empty())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "secret is empty; give all ranks the same, and nobody else");
    }
    return connect(std::move(control), configure(options));
}

std::shared_ptr<Communicator> connect_from_environment(const CommOptions &options) {
    const Settings settings = configure(options);
    const Launch launch = read_launch(process_environment());
    if (log_enabled(LogLevel::info, "launch")) {
        std::string text = "started by " + launch.source;
        if (launch.ranks > 1)
            text += ", meeting at " + to_text({launch.host, launch.port}) +
                    (launch.secret_derived ? ", with a secret made of the job's identity" : "");
        for (const std::string &other : launch.ignored) text += ", ignoring " + other;
        log(LogLevel::info, "launch", launch.rank, launch.ranks, text);
    }
    TcpControlOptions control;
    control.rank = launch.rank;
    control.ranks = launch.ranks;
    control.secret = launch.secret;
    control.listen_descriptor = launch.listen_descriptor;
    if (launch.ranks > 1) control.addresses = {{launch.host, launch.port}};
    return connect(std::move(control), settings);
}

std::shared_ptr<Communicator> connect_through(int rank, int ranks, const AllGather &all_gather,
                                              const CommOptions &options) {
    require_rank(rank, ranks);
    const Settings settings = configure(options);
    const auto gather = [&](const void *mine, std::size_t bytes) {
        std::string all(bytes * static_cast<std::size_t>(ranks), '\0');
        if (!all_gather(mine, bytes, all.data()))
            throw Error(VESCOMM_ERROR_SYSTEM,
                        "the given all_gather failed on rank " + std::to_string(rank));
        return all;
    };
    TcpControlOptions control;
    control.rank = rank;
    control.ranks = ranks;
    TcpMeetingPoint meeting;
    std::string invitation;
    if (rank == 0 && ranks > 1) {
        meeting = open_tcp_meeting_point();
        std::string secret(secret_bytes, '\0');
        if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
            throw system_error("cannot get random bytes from the system");
        invitation = Invitation{meeting.addresses, secret}.text();
        control.listen_descriptor = meeting.listener.get();
    }
    if (ranks > 1) {
        std::uint64_t size = invitation.size();
        std::memcpy(&size, gather(&size, sizeof size).data(), sizeof size);
        if (size == 0 || size > largest_invitation)
            throw Error(VESCOMM_ERROR_SYSTEM,
                        "the given all_gather brought a size of " + std::to_string(size) +
                            " bytes from rank 0; it must put rank 0's bytes first");
        invitation.resize(size);
        Invitation read = Invitation::parse(gather(invitation.data(), size).substr(0, size));
        control.addresses = std::move(read.addresses);
        control.secret = std::move(read.secret);
    }
    return connect(std::move(control), settings);
}

}  // namespace vescomm
