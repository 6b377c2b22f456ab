// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_job.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "base/system.h"
#include "bootstrap/tcp_address.h"
#include "tools/run_cores.h"

namespace vescomm::internal {

namespace {

// Signals that are forwarded to the ranks. The reaction of the ranks decides how the job ends.
constexpr int forwarded_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
// Time in which a second SIGINT or SIGTERM belongs to the same request: timeout(1) signals the
// launcher, then its process group.
constexpr double repetition_seconds = 0.2;
// Time between the failure of a rank and SIGTERM for the others. They observe the failure by
// themselves, report it, and write their flight recorders.
constexpr double report_seconds = 1;

std::string describe(const siginfo_t &how) {
    if (how.si_code == CLD_EXITED) return fmt::format("exited with code {}", how.si_status);
    return fmt::format("was ended by signal {} ({}{})", how.si_status, strsignal(how.si_status),
                       how.si_code == CLD_DUMPED ? ", core dumped" : "");
}

int exit_code_of(const siginfo_t &how) {
    return how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
}

}  // namespace

Job::Job(const RunOptions &options) : options_(options), meeting_(options) {
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

ProcessPlan Job::plan_for(int local_rank, const std::string &listener) const {
    const int rank = options_.first_rank + local_rank;
    const auto number = [](int value) { return std::to_string(value); };
    ProcessPlan plan;
    plan.program = options_.program;
    plan.signal_mask = signal_mask_;
    plan.variables = {
        {"VESCOMM_RANK", number(rank)},
        {"VESCOMM_RANKS", number(options_.ranks)},
        {"VESCOMM_ADDRESS", to_text({meeting_.host(), meeting_.port()})},
        {"VESCOMM_SECRET", meeting_.secret()},
        {"VESCOMM_LISTEN_DESCRIPTOR", std::nullopt},
        {"RANK", number(rank)},
        {"WORLD_SIZE", number(options_.ranks)},
        {"LOCAL_RANK", number(local_rank)},
        {"LOCAL_WORLD_SIZE", number(options_.local_ranks)},
        {"MASTER_ADDR", meeting_.host()},
        {"MASTER_PORT", number(meeting_.port() + 1)},
    };
    if (!options_.nodes.empty())
        plan.variables.emplace_back("VESCOMM_NODE", options_.nodes[local_rank]);
    if (!cores_.empty()) plan.cores = cores_[local_rank];
    if (rank == 0) {
        plan.takes_input = true;
        plan.keep_descriptor = meeting_.listener().get();
        for (auto &[name, value] : plan.variables)
            if (name == "VESCOMM_LISTEN_DESCRIPTOR") value = listener;
        // A background process group may not read from the terminal.
        plan.own_group = isatty(STDIN_FILENO) == 0;
    }
    return plan;
}

void Job::start_ranks() {
    const std::string listener = std::to_string(meeting_.listener().get());
    try {
        for (int i = 0; i < options_.local_ranks; ++i) {
            const ProcessPlan plan = plan_for(i, listener);
            StartedProcess process = start_process(plan);
            const int rank = options_.first_rank + i;
            const std::string prefix = options_.prefix ? fmt::format("[{}] ", rank) : "";
            ranks_.add({rank, process.id, plan.own_group});
            streams_.add(process, prefix);
        }
    } catch (const NotStarted &error) {
        streams_.say(error.why);
        end_all(error.exit_code, 0);
    }
    meeting_.close_listener();
}

int Job::run() {
    start_ranks();
    while (!ranks_.empty()) {
        wait_for_events();
        handle_signals();
        handle_ended();
        signal_if_due();
    }
    streams_.copy_rest();
    reap_killed_groups();
    streams_.flush();
    return exit_code_;
}

// Killed processes end at once, except those that wait for a broken disk.
void Job::reap_killed_groups() {
    const Deadline deadline = Deadline::after(1);
    while (!ranks_.reap_killed_groups() && !deadline.expired()) {
        pollfd entry{signals_.get(), POLLIN, 0};
        poll(&entry, 1, 1);
        handle_signals();
    }
}

void Job::wait_for_events() {
    std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
    streams_.watch(entries);
    if (poll(entries.data(), entries.size(), ending_.timeout()) > 0)
        streams_.copy(entries.data() + 1);
}

void Job::handle_signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
        const int signal = static_cast<int>(info.ssi_signo);
        if (signal != SIGCHLD) forward(signal, info.ssi_code == SI_KERNEL);
    }
}

void Job::forward(int signal, bool from_terminal) {
    const bool request = signal == SIGINT || signal == SIGTERM;
    if (request && !request_end(signal)) return;
    ranks_.forward(signal, from_terminal);
    // A stopped process handles a signal only after SIGCONT.
    if (request) ranks_.signal(SIGCONT);
}

// Returns false if the signal must not be forwarded.
bool Job::request_end(int signal) {
    if (repetition_) {
        if (!repetition_->expired()) return signal != request_;
        streams_.say("asked to end for the second time: killing all ranks");
        kill_ranks();
        return false;
    }
    repetition_ = Deadline::after(repetition_seconds);
    // The failure of a rank may have begun the end: its exit code counts.
    if (!ending_.begun()) request_ = signal;
    if (!ending_.asked()) ending_.begin_grace(options_.grace_seconds);
    return true;
}

void Job::kill_ranks() {
    killing_ = true;
    ranks_.signal(SIGKILL);
}

void Job::handle_ended() {
    for (;;) {
        siginfo_t how{};
        // Do not reap yet: while the leader is a zombie, the number of its group is not reused.
        if (waitid(P_ALL, 0, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid == 0) return;
        if (const auto rank = ranks_.find(how.si_pid)) {
            const int failed_before = failed_;
            note_end(*rank, how);
            // Processes that a failed rank had started end with it.
            if (ending_.begun() || failed_ > failed_before) ranks_.kill_group_of(*rank);
            ranks_.remove(rank->id);
        }
        waitpid(how.si_pid, nullptr, 0);
    }
}

void Job::note_end(const RunningRank &rank, const siginfo_t &how) {
    if (how.si_code == CLD_EXITED && how.si_status == 0) return;
    const bool by_signal = how.si_code != CLD_EXITED;
    if (request_ != 0) {
        const bool killed = killing_ && by_signal && how.si_status == SIGKILL;
        if (failed_ == 0 && !killed)
            streams_.say(fmt::format("rank {} (process {}) {}", rank.rank, rank.id, describe(how)));
        note_failure(killed ? 128 + request_ : exit_code_of(how));
        if (!enough_left()) exit_code_ = first_failure_;
        return;
    }
    // Ranks that the launcher ends have not failed.
    if (ending_.asked()) return;
    if (ending_.begun()) {
        // Others exit because of a rank that a signal ended. The launcher may observe them first:
        // the kernel closes the connections of a process before it reports its end.
        if (!by_signal || first_by_signal_) return;
        first_by_signal_ = true;
        exit_code_ = 128 + how.si_status;
        streams_.say(fmt::format("rank {} (process {}) {}", rank.rank, rank.id, describe(how)));
        return;
    }
    if (failed_ == 0) first_by_signal_ = by_signal;
    const auto others = ranks_.count() - 1;
    note_failure(exit_code_of(how));
    if (enough_left()) {
        streams_.say(fmt::format(
            "rank {} (process {}) {}; the others go on: {} of {} have not failed", rank.rank,
            rank.id, describe(how), options_.local_ranks - failed_, options_.local_ranks));
        return;
    }
    streams_.say(fmt::format("rank {} (process {}) {}{}", rank.rank, rank.id, describe(how),
                             others == 0 ? "" : fmt::format("; ending the other {}", others)));
    end_all(first_failure_, report_seconds);
}

void Job::note_failure(int exit_code) {
    if (++failed_ == 1) first_failure_ = exit_code;
}

bool Job::enough_left() const {
    return options_.min_ranks > 0 && options_.local_ranks - failed_ >= options_.min_ranks;
}

void Job::end_all(int exit_code, double seconds) {
    exit_code_ = exit_code;
    ending_.begin(seconds);
}

void Job::signal_if_due() {
    switch (ending_.take(options_.grace_seconds)) {
        case Ending::Signal::none:
            return;
        case Ending::Signal::term:
            ranks_.signal(SIGTERM);
            // A stopped process handles SIGTERM only after SIGCONT.
            ranks_.signal(SIGCONT);
            return;
        case Ending::Signal::kill:
            if (ranks_.empty()) return;
            streams_.say(fmt::format("not ended {} s after {}, and killed: rank{}{}",
                                     options_.grace_seconds,
                                     request_ == SIGINT ? "SIGINT" : "SIGTERM",
                                     ranks_.count() == 1 ? "" : "s", ranks_.list()));
            kill_ranks();
    }
}

}  // namespace vescomm::internal
