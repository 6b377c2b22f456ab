// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>

extern char **environ;

namespace vescomm::internal {

namespace {

std::string reason(int code) {
    return std::generic_category().message(code);
}

std::pair<Descriptor, Descriptor> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        throw NotStarted{126, fmt::format("cannot make a pipe: {}; see ulimit -n", reason(errno))};
    return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<std::string> make_environment(const ProcessPlan &plan) {
    std::vector<std::string> environment;
    for (char **entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const auto same = [&](const auto &variable) {
            return text.starts_with(variable.first + "=");
        };
        if (std::none_of(plan.variables.begin(), plan.variables.end(), same))
            environment.emplace_back(text);
    }
    for (const auto &[name, value] : plan.variables)
        if (value) environment.push_back(name + "=" + *value);
    return environment;
}

std::vector<char *> pointers_to(std::vector<std::string> &texts) {
    std::vector<char *> pointers;
    pointers.reserve(texts.size() + 1);
    for (std::string &text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
}

// Runs in the child. Returns only if the program cannot be run; errno says why.
void exec_program(const ProcessPlan &plan, pid_t launcher, int output, int errors,
                  char *const *arguments, char *const *environment) {
    // The launcher may have died between fork() and prctl(), so check the parent.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher) _exit(126);
    if (plan.own_group && setpgid(0, 0) != 0) return;
    if (!plan.takes_input) {
        const int nothing = open("/dev/null", O_RDONLY);
        if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) return;
        if (nothing != STDIN_FILENO) close(nothing);
    }
    if (dup2(output, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0) return;
    if (plan.keep_descriptor >= 0 && fcntl(plan.keep_descriptor, F_SETFD, 0) != 0) return;
    if (plan.cores && sched_setaffinity(0, sizeof *plan.cores, &*plan.cores) != 0) return;
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
    execvpe(arguments[0], arguments, environment);
}

NotStarted cannot_run(const std::string &program, int code) {
    if (code == ENOENT || code == ENOTDIR) {
        const bool path = program.find('/') != std::string::npos;
        return {127, fmt::format("program {} does not exist{}", program,
                                 path ? ""
                                      : " in any folder of PATH; for one in this folder write "
                                        "./" +
                                            program)};
    }
    return {126, fmt::format("program {} cannot be run: {}", program, reason(code))};
}

}  // namespace

StartedProcess start_process(const ProcessPlan &plan) {
    std::vector<std::string> program = plan.program;
    std::vector<std::string> environment = make_environment(plan);
    const std::vector<char *> arguments = pointers_to(program);
    const std::vector<char *> variables = pointers_to(environment);
    auto [output, output_end] = make_pipe();
    auto [errors, errors_end] = make_pipe();
    auto [status, status_end] = make_pipe();  // carries errno, or closes when the program runs

    const pid_t launcher = getpid();
    const pid_t id = fork();
    if (id < 0)
        throw NotStarted{126, fmt::format("cannot start another process: {}", reason(errno))};
    if (id == 0) {
        exec_program(plan, launcher, output_end.get(), errors_end.get(), arguments.data(),
                     variables.data());
        const int code = errno;
        _exit(write(status_end.get(), &code, sizeof code) == sizeof code ? 126 : 125);
    }
    // Parent and child both call setpgid(), so the group exists when this function returns.
    if (plan.own_group) setpgid(id, id);
    status_end = Descriptor();
    int code = 0;
    ssize_t got;
    do got = read(status.get(), &code, sizeof code);
    while (got < 0 && errno == EINTR);
    if (got == sizeof code) {
        waitpid(id, nullptr, 0);
        throw cannot_run(plan.program.front(), code);
    }
    for (const Descriptor *end : {&output, &errors})
        fcntl(end->get(), F_SETFL, fcntl(end->get(), F_GETFL) | O_NONBLOCK);
    return {id, std::move(output), std::move(errors)};
}

}  // namespace vescomm::internal
