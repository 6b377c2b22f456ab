// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/connect.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/system.h"
#include "bootstrap/launch.h"
#include "bootstrap/session.h"
#include "bootstrap/user_key.h"
#include "comm/build.h"
#include "comm/invitation.h"
#include "observe/log.h"
#include "topology/node_name.h"
#include "transport/transports.h"

namespace vescomm::internal {

namespace {

constexpr std::size_t secret_bytes = 32;
// Far more than the addresses of all interfaces and a secret need.
constexpr std::uint64_t max_invitation_bytes = 64 * 1024;

struct Settings {
    Config config;
    // The fault of invalid settings. It is reported to all ranks once they are connected, so that
    // none waits for this rank.
    std::optional<Error> refused;
};

Settings configure(const CommOptions &options) {
    Settings settings;
    try {
        Config config = read_config(process_environment());
        set_log_filter(config.log);
        apply(options, "the default", config);
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

// A peer that connects gets a proof of the secret, by which a shorter one can be guessed.
constexpr std::size_t min_secret_bytes = 16;

// Rejects a secret that others may know or guess, if others can connect.
void require_secret(const std::string &host, const std::string &secret, bool derived,
                    const Config &config) {
    if (is_loopback(host) || config.insecure == "1") return;
    if (derived)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "VESCOMM_SECRET is not set, and rank 0 is to listen on " + host +
                        ", where others can connect; set it to the same random text on all ranks "
                        "(docs/launching.md has the line for each launcher), or set "
                        "VESCOMM_INSECURE=1 where nobody else uses the network");
    if (secret.size() < min_secret_bytes)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "the secret has " + std::to_string(secret.size()) +
                        " characters, few enough to be guessed, and rank 0 is to listen on " +
                        host + ", where others can connect; give " +
                        std::to_string(min_secret_bytes) +
                        " or more random ones, or set VESCOMM_INSECURE=1 where nobody else uses "
                        "the network");
}

// A secret from a text and a key of this user. The other users of the machine may know or guess the
// text, but not the key.
std::string local_secret(const std::string &text, int rank, int ranks) {
    if (const auto key = user_key(user_cache_folder())) {
        const FrameKey hash = keyed_hash(*key, text);
        return std::string(hash.begin(), hash.end());
    }
    if (rank == 0)
        log(LogLevel::warn, "launch", rank, ranks,
            "no folder for a key of this user (XDG_CACHE_HOME, HOME): other users of this machine "
            "may guess the secret of this job; set VESCOMM_SECRET to 16 or more random characters");
    return text;
}

// The secret of the session, of the one that was given or derived.
std::string session_secret(const std::string &host, const std::string &secret, bool derived,
                           const Config &config, int rank, int ranks) {
    require_secret(host, secret, derived, config);
    const bool guessable = derived || secret.size() < min_secret_bytes;
    return guessable && is_loopback(host) ? local_secret(secret, rank, ranks) : secret;
}

std::shared_ptr<Communicator> connect(SessionOptions session, const Settings &settings,
                                      const std::string &tag) {
    const Config &config = settings.config;
    // One rank logs for all: launchers give all ranks the same environment.
    if (session.rank == 0)
        for (const std::string &unknown : unknown_variables(process_variable_names()))
            log(LogLevel::warn, "config", session.rank, session.ranks, unknown);
    session.silence_seconds = config.silence_seconds;
    // Several heartbeats within the silence after which a rank counts as dead.
    session.heartbeat_seconds = std::min(1.0, config.silence_seconds / 5);
    session.build = build_name();
    const auto refuse = [&](Control &control) {
        control.fail(settings.refused->status,
                     "rank " + std::to_string(session.rank) +
                         " could not make its communicator: " + settings.refused->what());
        throw Error(*settings.refused);
    };
    if (session.ranks == 1) {
        auto control = make_lone_control();
        if (settings.refused) refuse(*control);
        return Communicator::create(std::move(control), config.node, config,
                                    transports_for(config));
    }
    Deadline deadline = Deadline::after(config.timeout_seconds);
    std::vector<int> everyone(static_cast<std::size_t>(session.ranks));
    std::iota(everyone.begin(), everyone.end(), 0);
    for (;;) {
        Session::Creation creation(tag);
        const std::shared_ptr<Session> met = Session::meet(session, deadline, creation);
        bool opened = false;
        try {
            auto control =
                met->open(creation.id(), everyone, "communicator creation", deadline, &creation);
            opened = true;
            if (settings.refused) refuse(*control);
            auto comm = Communicator::create(std::move(control), config.node, config,
                                             transports_for(config), creation.creator());
            creation.check();
            return comm;
        } catch (const Error &error) {
            if (Session::Creation::overlapped(error)) creation.wait_for_the_other();
            // Another process has just ended the session in order: all ranks connect again.
            if (opened || error.status != VESCOMM_ERROR_PEER_FAILED || !met->ended_in_order())
                throw;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

}  // namespace

void apply(const CommOptions &options, const char *otherwise, Config &config) {
    // Not a number is not at least 0.
    if (!(options.timeout_seconds >= 0))
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "timeout_seconds is " + std::to_string(options.timeout_seconds) +
                        "; give seconds above 0, or 0 for " + otherwise);
    if (options.timeout_seconds > 0) config.timeout_seconds = options.timeout_seconds;
    if (!options.node.empty()) config.node = options.node;
    if (options.reproducible) config.reproducible = "yes";
}

Communicator::MakeTransports transports_for(const Config &config) {
    const TransportOptions options{config.transport, config.encryption == "yes"};
    return [options](const Nodes &nodes, Control &control, Failure &failure,
                     std::function<void()> on_signal, Deadline deadline) {
        return make_transports(nodes, control, failure, std::move(on_signal), deadline, options);
    };
}

std::shared_ptr<Communicator> connect_explicitly(int rank, int ranks, const std::string &address,
                                                 const std::string &secret,
                                                 const CommOptions &options) {
    require_rank(rank, ranks);
    const Settings settings = configure(options);
    SessionOptions session;
    session.rank = rank;
    session.ranks = ranks;
    if (ranks > 1) {
        session.addresses = {parse_tcp_address(address, "address \"" + address + "\"")};
        if (secret.empty())
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "secret is empty; give all ranks the same, and nobody else");
        session.secret = session_secret(session.addresses.front().host, secret, false,
                                        settings.config, rank, ranks);
    }
    return connect(std::move(session), settings, options.tag);
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
    SessionOptions session;
    session.rank = launch.rank;
    session.ranks = launch.ranks;
    session.listen_descriptor = launch.listen_descriptor;
    if (launch.ranks > 1) {
        session.addresses = {{launch.host, launch.port}};
        session.secret = session_secret(launch.host, launch.secret, launch.secret_derived,
                                        settings.config, launch.rank, launch.ranks);
    }
    return connect(std::move(session), settings, options.tag);
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
    SessionOptions session;
    session.rank = rank;
    session.ranks = ranks;
    MeetingPoint meeting;
    std::string invitation;
    if (rank == 0 && ranks > 1) {
        meeting = open_meeting_point();
        std::string secret(secret_bytes, '\0');
        if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
            throw system_error("cannot get random bytes from the system");
        invitation = Invitation{meeting.addresses, secret}.text();
        session.listen_descriptor = meeting.listener.get();
    }
    if (ranks > 1) {
        std::uint64_t size = invitation.size();
        std::memcpy(&size, gather(&size, sizeof size).data(), sizeof size);
        if (size == 0 || size > max_invitation_bytes)
            throw Error(VESCOMM_ERROR_SYSTEM,
                        "the given all_gather brought a size of " + std::to_string(size) +
                            " bytes from rank 0; it must put rank 0's bytes first");
        invitation.resize(size);
        Invitation read = Invitation::parse(gather(invitation.data(), size).substr(0, size));
        session.addresses = std::move(read.addresses);
        session.secret = std::move(read.secret);
    }
    return connect(std::move(session), settings, options.tag);
}

}  // namespace vescomm::internal
