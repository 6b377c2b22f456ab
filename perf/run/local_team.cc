// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up. While a team works, this process sleeps in poll().
#include "perf/run/local_team.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "perf/implementations/limit_memory.h"
#include "perf/run/exit_codes.h"
#include "perf/run/interrupt.h"

namespace vescomm::perf {
namespace {

// Time to start a team: libraries are loaded, ranks connect.
constexpr double start_seconds = 60;

int listen_at(const std::string &path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        throw Failure(ExitCode::internal, path + ": too long for a socket; set TMPDIR to another");
    path.copy(address.sun_path, path.size());
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 ||
        bind(listener, reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
        listen(listener, 4096) != 0)
        throw Failure(ExitCode::internal, path + ": " + std::strerror(errno));
    return listener;
}

// Listens on a free port, which is reserved from here on, so no other process can take it.
int listen_anywhere(std::string &address) {
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    auto *plain = reinterpret_cast<sockaddr *>(&here);
    if (listener < 0 || bind(listener, plain, size) != 0 || listen(listener, 4096) != 0 ||
        getsockname(listener, plain, &size) != 0)
        throw Failure(ExitCode::internal, std::string("a port: ") + std::strerror(errno));
    address = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
    return listener;
}

std::string make_secret() {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        throw Failure(ExitCode::internal, "there are no random numbers");
    return fmt::format("{:02x}", fmt::join(bytes, ""));
}

std::string last_lines(const std::string &path) {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    std::string text = all.str();
    constexpr std::size_t max = 1500;
    if (text.size() > max) text = "..." + text.substr(text.size() - max);
    return text.empty() ? "" : "\nit printed:\n" + text;
}

}  // namespace

LocalTeam::LocalTeam(const ImplementationRow &row, const LocalSetting &setting)
    : name_(row.name),
      setting_(setting),
      folder_(setting.folder + "/" + name_),
      launched_(row.launcher != nullptr),
      gate_(4096),
      log_(0) {
    mkdir(folder_.c_str(), 0700);
    if (name_ == "limit" && setting.hosts == nullptr)
        shared_ = std::make_unique<SharedFile>(
            LimitMemory::bytes_for(setting.ranks, setting.largest_bytes));
    const int listener = listen_at(folder_ + "/socket");
    try {
        start(row);
        gather_workers(listener);
    } catch (...) {
        close(listener);
        end_processes(0);
        throw;
    }
    close(listener);
    // All workers are connected. From now on nothing is left behind, even after a SIGKILL.
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

LocalTeam::~LocalTeam() {
    workers_.clear();  // workers end when their connection is closed
    end_processes(5);
}

void LocalTeam::start(const ImplementationRow &row) {
    if (setting_.hosts != nullptr) address_ = setting_.hosts->address(0) + ":29700";
    else listener_for_vescomm_ = listen_anywhere(address_);
    const std::string secret = make_secret();
    for (int rank = 0; rank < (launched_ ? 1 : setting_.ranks); rank += setting_.threads) {
        ProcessOptions options = options_of(rank, row);
        options.environment.emplace_back("VESCOMM_SECRET", secret);
        processes_.emplace_back(options);
    }
    if (listener_for_vescomm_ >= 0) close(listener_for_vescomm_);
}

// A launcher reaches other hosts through an agent program. For emulated hosts it is a script, which
// is called with an address and a command in one string.
Launch LocalTeam::launch() const {
    Launch launch{.ranks = setting_.ranks, .hosts = {}, .agent = folder_ + "/on-host"};
    if (setting_.hosts == nullptr) return launch;
    std::ofstream script(launch.agent);
    script << "#!/bin/sh\ncase \"$1\" in\n";
    for (int host = 0; host < setting_.hosts->count(); ++host) {
        launch.hosts.emplace_back(setting_.hosts->address(host), 0);
        script << setting_.hosts->address(host) << ") network=" << setting_.hosts->network(host)
               << ";;\n";
    }
    script << "esac\nshift\nexec ip netns exec \"$network\" sh -c \"$*\"\n";
    script.close();
    if (!script || chmod(launch.agent.c_str(), 0700) != 0)
        throw Failure(ExitCode::internal, launch.agent + ": " + std::strerror(errno));
    for (int rank = 0; rank < setting_.ranks; ++rank)
        ++launch.hosts[setting_.hosts->host_of(rank, setting_.ranks)].second;
    return launch;
}

ProcessOptions LocalTeam::options_of(int rank, const ImplementationRow &row) const {
    ProcessOptions options;
    options.log = log_.path();
    if (launched_) options.words = row.launcher(launch());
    for (std::string &word : worker_command(row)) options.words.push_back(std::move(word));
    const auto set = [&](const char *name, const std::string &value) {
        options.environment.emplace_back(name, value);
    };
    set("VESCOMM_PERF_RANKS", std::to_string(setting_.ranks));
    set("VESCOMM_PERF_FOLDER", folder_);
    set("VESCOMM_PERF_GATE", gate_.path());
    set("VESCOMM_PERF_BIND", setting_.bind ? "core" : "none");
    set("VESCOMM_PERF_THREADS", std::to_string(setting_.threads));
    set("VESCOMM_PERF_PADDED_BYTES", std::to_string(setting_.padded_bytes));
    if (setting_.shares_devices) set("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    if (shared_) {
        set("VESCOMM_PERF_SHARED", shared_->path());
        set("VESCOMM_PERF_SHARED_BYTES",
            std::to_string(LimitMemory::bytes_for(setting_.ranks, setting_.largest_bytes)));
    }
    // UCX takes emulated hosts for one machine and would use shared memory.
    if (setting_.hosts != nullptr && (name_ == "ucc" || name_ == "mpi-ucx"))
        set("UCX_TLS", "self,tcp");
    if (launched_) {
        if (setting_.hosts != nullptr) options.network = setting_.hosts->network(0);
        return options;
    }
    set("VESCOMM_PERF_RANK", std::to_string(rank));
    set("VESCOMM_RANK", std::to_string(rank));
    set("VESCOMM_RANKS", std::to_string(setting_.ranks));
    set("VESCOMM_ADDRESS", address_);
    if (setting_.hosts != nullptr) {
        const int host = setting_.hosts->host_of(rank, setting_.ranks);
        options.network = setting_.hosts->network(host);
        set("VESCOMM_PERF_ADDRESS", setting_.hosts->address(host));
        set("VESCOMM_NODE", options.network);
    } else if (rank == 0) {
        options.inherit = listener_for_vescomm_;
        set("VESCOMM_LISTEN_DESCRIPTOR", std::to_string(listener_for_vescomm_));
    }
    return options;
}

void LocalTeam::gather_workers(int listener) {
    const double deadline = now_seconds() + std::min(start_seconds, setting_.timeout_seconds);
    std::vector<LineSocket> pending;  // connections whose rank is unknown
    std::vector<Answer> hellos(static_cast<std::size_t>(setting_.ranks));
    while (static_cast<int>(pending.size()) < setting_.ranks) {
        wait_for({listener}, deadline, "its ranks started");
        pending.emplace_back(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    }
    std::vector<int> order(static_cast<std::size_t>(setting_.ranks), -1);
    for (std::size_t i = 0; i < pending.size(); ++i) {
        std::optional<std::string> line;
        while (!line) {
            wait_for({pending[i].descriptor()}, deadline, "its ranks said hello");
            line = pending[i].receive();
        }
        const Answer hello = answer_of(*line);
        if (!hello.error.empty()) fail(ExitCode::failed, hello.error);
        if (hello.rank < 0 || hello.rank >= setting_.ranks || order[hello.rank] >= 0)
            fail(ExitCode::failed, fmt::format("two processes say that they are rank {}, or there "
                                               "is none",
                                               hello.rank));
        order[hello.rank] = static_cast<int>(i);
        version_ = hello.version;
    }
    for (const int i : order) workers_.push_back(std::move(pending[static_cast<std::size_t>(i)]));
}

std::vector<Answer> LocalTeam::ask(const Command &command) {
    const double deadline = now_seconds() + setting_.timeout_seconds;
    const std::string line = to_line(command);
    std::vector<Answer> answers(workers_.size());
    std::vector<bool> answered(workers_.size(), false);
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
        try {
            workers_[rank].write(line);
        } catch (const std::exception &) {
            fail_gone(rank);
        }
    }
    while (true) {
        std::vector<int> descriptors;
        std::vector<std::size_t> ranks;
        for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
            if (answered[rank]) continue;
            descriptors.push_back(workers_[rank].descriptor());
            ranks.push_back(rank);
        }
        if (descriptors.empty()) return answers;
        wait_for(descriptors, deadline, fmt::format("rank {} answered", ranks.front()));
        for (const std::size_t rank : ranks) {
            pollfd entry{workers_[rank].descriptor(), POLLIN, 0};
            if (poll(&entry, 1, 0) != 1) continue;
            std::optional<std::string> said;
            try {
                said = workers_[rank].receive();
            } catch (const std::exception &) {
                fail_gone(rank);
            }
            if (!said) continue;
            answers[rank] = answer_of(*said);
            answered[rank] = true;
            // The other ranks may wait for this one for ever.
            if (!answers[rank].error.empty())
                fail(ExitCode::failed, fmt::format("rank {}: {}", rank, answers[rank].error));
        }
    }
}

void LocalTeam::wait_for(const std::vector<int> &descriptors, double deadline,
                         const std::string &what) {
    while (true) {
        std::vector<pollfd> entries;
        entries.reserve(descriptors.size() + processes_.size());
        for (const int descriptor : descriptors) entries.push_back({descriptor, POLLIN, 0});
        for (const Process &process : processes_)
            entries.push_back({process.descriptor(), POLLIN, 0});
        const double left = deadline - now_seconds();
        if (left <= 0)
            fail(ExitCode::timeout,
                 fmt::format("{} seconds were over before {}", setting_.timeout_seconds, what));
        const int ready = poll(entries.data(), entries.size(),
                               static_cast<int>(std::ceil(std::min(left, 1000.0) * 1000)));
        check_interrupt();
        for (std::size_t i = descriptors.size(); i < entries.size(); ++i) {
            Process &process = processes_[i - descriptors.size()];
            if (entries[i].revents == 0 || !process.ended()) continue;
            fail(ExitCode::failed,
                 launched_
                     ? fmt::format("its launcher ended with {}", process.how())
                     : fmt::format("rank {} ended with {}",
                                   static_cast<int>(i - descriptors.size()) * setting_.threads,
                                   process.how()));
        }
        if (ready > 0) return;
    }
}

// Fails for a rank whose connection is closed. The process may end only a moment later.
void LocalTeam::fail_gone(std::size_t rank) {
    if (!launched_) {
        Process &process = processes_[rank / static_cast<std::size_t>(setting_.threads)];
        if (process.wait_until(now_seconds() + 5))
            fail(ExitCode::failed, fmt::format("rank {} ended with {}", rank, process.how()));
    }
    fail(ExitCode::failed, fmt::format("rank {} is gone", rank));
}

void LocalTeam::fail(ExitCode code, const std::string &what) {
    end_processes(0);
    throw Failure(code, fmt::format("{}: {}{}", name_, what, last_lines(log_.path())));
}

// Sends SIGTERM before SIGKILL, so that a launcher can end its ranks.
void LocalTeam::end_processes(double patience) {
    const double deadline = now_seconds() + patience;
    for (Process &process : processes_) {
        if (process.wait_until(deadline)) continue;
        process.signal(launched_ ? SIGTERM : SIGKILL);
        if (!process.wait_until(now_seconds() + 5)) process.signal(SIGKILL);
        process.wait_until(now_seconds() + 5);
    }
}

}  // namespace vescomm::perf
