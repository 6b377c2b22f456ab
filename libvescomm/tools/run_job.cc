// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system.h"
#include "bootstrap/tcp_address.h"
#include "tools/run_cores.h"

namespace vescomm::internal {

namespace {

// Signals that are forwarded to the ranks. The reaction of the ranks decides how the job ends.
constexpr int forwarded_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
// Number of SIGINT and SIGTERM that are forwarded; the next one kills all ranks.
constexpr int max_forwarded_interrupts = 2;
// Time between the failure of a rank and SIGTERM for the others. They observe the failure by
// themselves, report it, and write their flight recorders.
constexpr double report_seconds = 1;

std::string make_secret() {
    std::array<unsigned char, 32> bytes;
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        throw system_error("cannot get random bytes from the system");
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

bool port_is_free(std::uint16_t port) {
    try {
        return !listen_on({"127.0.0.1", port}).empty();
    } catch (const Error &) {
        return false;
    }
}

// Finds two consecutive free ports: MASTER_PORT is always the port after that of VESCOMM_ADDRESS.
Descriptor listen_on_free_ports() {
    constexpr int tries = 50;
    for (int i = 0; i < tries; ++i) {
        Descriptor listener = std::move(listen_on({"127.0.0.1", 0}).front());
        const std::uint16_t port = port_of(listener.get());
        if (port < 65535 && port_is_free(static_cast<std::uint16_t>(port + 1))) return listener;
    }
    throw Error(VESCOMM_ERROR_SYSTEM, "no two free ports were found; give --address HOST:PORT");
}

std::string describe(const siginfo_t &how) {
    if (how.si_code == CLD_EXITED) return fmt::format("exited with code {}", how.si_status);
    return fmt::format("was ended by signal {} ({}{})", how.si_status, strsignal(how.si_status),
                       how.si_code == CLD_DUMPED ? ", core dumped" : "");
}

}  // namespace

Job::Job(const RunOptions &options) : options_(options), out_(STDOUT_FILENO), err_(STDERR_FILENO) {
    if (!options_.address.empty()) {
        const TcpAddress address = parse_tcp_address(options_.address, "--address");
        if (options_.first_rank == 0) listener_ = std::move(listen_on(address).front());
        host_ = address.host;
        port_ = std::to_string(address.port);
        next_port_ = std::to_string(address.port + 1);
    } else {
        listener_ = listen_on_free_ports();
        host_ = "127.0.0.1";
        port_ = std::to_string(port_of(listener_.get()));
        next_port_ = std::to_string(port_of(listener_.get()) + 1);
    }
    secret_ = options_.secret.empty() ? make_secret() : options_.secret;
    if (options_.bind_to_cores) cores_ = split_cores(options_.local_ranks);

    sigset_t watched;
    sigemptyset(&watched);
    for (const int signal : forwarded_signals) sigaddset(&watched, signal);
    sigaddset(&watched, SIGCHLD);
    sigprocmask(SIG_BLOCK, &watched, &signal_mask_);
    signal(SIGPIPE, SIG_IGN);
    signals_ = Descriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_.open()) throw system_error("cannot watch for signals");
    // Orphans of ranks become children of the launcher, which reaps them.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Job::~Job() {
    // Ranks are left only after an exception.
    signal_ranks(SIGKILL);
    for (const Rank &rank : running_) waitpid(rank.id, nullptr, 0);
}

ProcessPlan Job::plan_for(int local_rank, const std::string &listener) const {
    const int rank = options_.first_rank + local_rank;
    const auto number = [](int value) { return std::to_string(value); };
    ProcessPlan plan;
    plan.program = options_.program;
    plan.signal_mask = signal_mask_;
    plan.variables = {
        {"VESCOMM_RANK", number(rank)},
        {"VESCOMM_RANKS", number(options_.ranks)},
        {"VESCOMM_ADDRESS", to_text({host_, static_cast<std::uint16_t>(std::stoi(port_))})},
        {"VESCOMM_SECRET", secret_},
        {"VESCOMM_LISTEN_DESCRIPTOR", std::nullopt},
        {"RANK", number(rank)},
        {"WORLD_SIZE", number(options_.ranks)},
        {"LOCAL_RANK", number(local_rank)},
        {"LOCAL_WORLD_SIZE", number(options_.local_ranks)},
        {"MASTER_ADDR", host_},
        {"MASTER_PORT", next_port_},
    };
    if (!options_.nodes.empty())
        plan.variables.emplace_back("VESCOMM_NODE", options_.nodes[local_rank]);
    if (!cores_.empty()) plan.cores = cores_[local_rank];
    if (rank == 0) {
        plan.takes_input = true;
        plan.keep_descriptor = listener_.get();
        for (auto &[name, value] : plan.variables)
            if (name == "VESCOMM_LISTEN_DESCRIPTOR") value = listener;
        // A background process group may not read from the terminal.
        plan.own_group = isatty(STDIN_FILENO) == 0;
    }
    return plan;
}

void Job::start_ranks() {
    const std::string listener = std::to_string(listener_.get());
    try {
        for (int i = 0; i < options_.local_ranks; ++i) {
            const ProcessPlan plan = plan_for(i, listener);
            StartedProcess process = start_process(plan);
            const int rank = options_.first_rank + i;
            const std::string prefix = options_.prefix ? fmt::format("[{}] ", rank) : "";
            running_.push_back({rank, process.id, plan.own_group});
            streams_.push_back({std::move(process.output), LineWriter(prefix, out_), out_});
            streams_.push_back({std::move(process.errors), LineWriter(prefix, err_), err_});
        }
    } catch (const NotStarted &error) {
        say(error.why);
        end_all(error.exit_code, 0);
    }
    // Only rank 0 holds the listener from here on: when rank 0 ends, connections must be refused
    // instead of waiting.
    listener_ = Descriptor();
}

int Job::run() {
    start_ranks();
    while (!running_.empty()) {
        wait_for_events();
        handle_signals();
        handle_ended();
        signal_if_due();
    }
    // All output of the ranks is in the pipes now. Do not wait for the end of the pipes: a process
    // that a rank left behind may hold one open.
    for (Stream &stream : streams_) {
        copy_output(stream);
        stream.lines.finish();
    }
    reap_killed_groups();
    flush();
    return exit_code_;
}

// Reaps the processes that ranks had started, which become children of the launcher when their
// parents end. Killed processes end at once, except those that wait for a broken disk.
void Job::reap_killed_groups() {
    const Deadline deadline = Deadline::after(1);
    while (!killed_groups_.empty() && !deadline.expired()) {
        std::erase_if(killed_groups_, [](pid_t group) {
            while (waitpid(-group, nullptr, WNOHANG) > 0) {
            }
            return kill(-group, 0) != 0 && errno == ESRCH;
        });
        if (killed_groups_.empty()) return;
        pollfd entry{signals_.get(), POLLIN, 0};
        poll(&entry, 1, 1);
        handle_signals();
    }
}

void Job::wait_for_events() {
    std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
    for (const OutputSink *sink : {&out_, &err_})
        entries.push_back({sink->empty() ? -1 : sink->descriptor(), POLLOUT, 0});
    for (const Stream &stream : streams_)
        entries.push_back({stream.sink.full() ? -1 : stream.pipe.get(), POLLIN, 0});
    const int timeout =
        signal_at_ ? static_cast<int>(std::min(signal_at_->seconds_left() * 1e3 + 1, 1e9)) : -1;
    if (poll(entries.data(), entries.size(), timeout) <= 0) return;
    if (entries[1].revents != 0) out_.write_some();
    if (entries[2].revents != 0) err_.write_some();
    std::size_t at = 3;
    for (Stream &stream : streams_)
        if (entries[at++].revents != 0) copy_output(stream);
    std::erase_if(streams_, [](const Stream &stream) { return !stream.pipe.open(); });
}

void Job::copy_output(Stream &stream) {
    std::array<char, 65536> buffer;
    while (stream.pipe.open() && !stream.sink.full()) {
        // If the launcher's stream is broken, close the pipe: the rank gets SIGPIPE, as it would
        // without the launcher.
        if (stream.sink.broken()) {
            stream.pipe = Descriptor();
            return;
        }
        const ssize_t got = read(stream.pipe.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            stream.lines.finish();
            stream.pipe = Descriptor();
            return;
        }
        stream.lines.add({buffer.data(), static_cast<std::size_t>(got)});
    }
}

void Job::handle_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
        const int signal = static_cast<int>(info.ssi_signo);
        if (signal != SIGCHLD) forward(signal, info.ssi_code == SI_KERNEL);
    }
}

// Forwards a signal to the ranks. A signal from the terminal has already reached the ranks in the
// launcher's own process group.
void Job::forward(int signal, bool from_terminal) {
    if ((signal == SIGINT || signal == SIGTERM) && ++interrupts_ > max_forwarded_interrupts) {
        say("asked to end for the third time: killing all ranks");
        signal_ranks(SIGKILL);
        return;
    }
    for (const Rank &rank : running_)
        if (rank.own_group || !from_terminal) kill(rank.own_group ? -rank.id : rank.id, signal);
}

void Job::handle_ended() {
    for (;;) {
        siginfo_t how{};
        // Do not reap yet: while the leader is a zombie, the number of its group is not reused.
        if (waitid(P_ALL, 0, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid == 0) return;
        const auto found = std::find_if(running_.begin(), running_.end(),
                                        [&](const Rank &rank) { return rank.id == how.si_pid; });
        if (found != running_.end()) {
            const Rank rank = *found;
            const int failed_before = failed_;
            note_end(rank, how);
            // Processes that a failed rank had started end with it.
            if ((ending_ || failed_ > failed_before) && rank.own_group &&
                kill(-rank.id, SIGKILL) == 0)
                killed_groups_.push_back(rank.id);
            running_.erase(std::find_if(running_.begin(), running_.end(),
                                        [&](const Rank &other) { return other.id == rank.id; }));
        }
        waitpid(how.si_pid, nullptr, 0);
    }
}

void Job::note_end(const Rank &rank, const siginfo_t &how) {
    if (how.si_code == CLD_EXITED && how.si_status == 0) return;
    // Ranks that the launcher ends have not failed.
    if (ending_) return;
    const auto others = running_.size() - 1;
    if (++failed_ == 1)
        first_failure_ = how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
    if (options_.local_ranks - failed_ >= options_.min_ranks && options_.min_ranks > 0) {
        say(fmt::format("rank {} (process {}) {}; the others go on: {} of {} have not failed",
                        rank.rank, rank.id, describe(how), options_.local_ranks - failed_,
                        options_.local_ranks));
        return;
    }
    say(fmt::format("rank {} (process {}) {}{}", rank.rank, rank.id, describe(how),
                    others == 0 ? "" : fmt::format("; ending the other {}", others)));
    end_all(first_failure_, report_seconds);
}

void Job::end_all(int exit_code, double seconds) {
    ending_ = true;
    exit_code_ = exit_code;
    signal_at_ = Deadline::after(seconds);
}

void Job::signal_if_due() {
    if (!signal_at_ || !signal_at_->expired()) return;
    if (!asked_to_end_) {
        asked_to_end_ = true;
        signal_at_ = Deadline::after(options_.grace_seconds);
        signal_ranks(SIGTERM);
        // A stopped process handles SIGTERM only after SIGCONT.
        signal_ranks(SIGCONT);
        return;
    }
    signal_at_.reset();
    std::string ranks;
    for (const Rank &rank : running_) ranks += fmt::format(" {}", rank.rank);
    if (running_.empty()) return;
    say(fmt::format("not ended {} s after SIGTERM, and killed: rank{}{}", options_.grace_seconds,
                    running_.size() == 1 ? "" : "s", ranks));
    signal_ranks(SIGKILL);
}

void Job::signal_ranks(int signal) {
    for (const Rank &rank : running_) kill(rank.own_group ? -rank.id : rank.id, signal);
}

// Writes all remaining output. It may block: nothing else is left to do.
void Job::flush() {
    for (OutputSink *sink : {&out_, &err_})
        while (!sink->empty()) {
            pollfd entry{sink->descriptor(), POLLOUT, 0};
            poll(&entry, 1, -1);
            sink->write_some();
        }
}

void Job::say(const std::string &text) {
    err_.write("vescomm-run: " + text + "\n");
}

}  // namespace vescomm::internal
