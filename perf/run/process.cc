// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "perf/run/exit_codes.h"
#include "perf/worker/shared_file.h"

namespace vescomm::perf {
namespace {

// Writes the cause to the log and ends the child.
[[noreturn]] void give_up(const char *what) {
    std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
    _exit(127);
}

void enter_network(const std::string &name) {
    const int network = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (network < 0 || setns(network, CLONE_NEWNET) != 0) give_up(name.c_str());
}

[[noreturn]] void become(const ProcessOptions &options, pid_t parent) {
    const int log = open(options.log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    // A group of its own, because the coordinator handles an interrupt at the terminal.
    setpgid(0, 0);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    if (options.inherit >= 0) fcntl(options.inherit, F_SETFD, 0);
    if (!options.network.empty()) enter_network(options.network);
    for (const auto &[name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char *> words;
    for (const std::string &word : options.words) words.push_back(const_cast<char *>(word.c_str()));
    words.push_back(nullptr);
    execvp(words[0], words.data());
    give_up(words[0]);
}

}  // namespace

double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Process::Process(const ProcessOptions &options) {
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw Failure(ExitCode::internal, std::string("fork: ") + std::strerror(errno));
    if (pid_ == 0) become(options, parent);
    descriptor_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    if (descriptor_ < 0) {
        const std::string why = std::strerror(errno);
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        throw Failure(ExitCode::internal, "pidfd_open: " + why);
    }
}

Process::Process(Process &&other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      ended_(other.ended_),
      status_(other.status_) {}

Process::~Process() {
    if (pid_ < 0) return;
    if (!ended_) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    close(descriptor_);
}

bool Process::ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
}

bool Process::wait_until(double seconds) {
    while (!ended()) {
        const double left = seconds - now_seconds();
        if (left <= 0) return false;
        pollfd entry{descriptor_, POLLIN, 0};
        poll(&entry, 1, static_cast<int>(std::ceil(std::min(left, 1000.0) * 1000)));
    }
    return true;
}

std::string Process::how() const {
    if (WIFSIGNALED(status_)) return "signal " + std::to_string(WTERMSIG(status_));
    return "exit code " + std::to_string(WEXITSTATUS(status_));
}

void Process::signal(int number) const {
    if (!ended_) kill(pid_, number);
}

void run_program(const std::vector<std::string> &words) {
    const SharedFile log(0);
    Process process(
        {.words = words, .environment = {}, .log = log.path(), .network = "", .inherit = -1});
    if (process.wait_until(now_seconds() + 60) && process.how() == "exit code 0") return;
    std::string text;
    for (const std::string &word : words) text += word + " ";
    std::stringstream said;
    said << std::ifstream(log.path()).rdbuf();
    throw Failure(ExitCode::internal, text + "failed: " + said.str());
}

}  // namespace vescomm::perf
