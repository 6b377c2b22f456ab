// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
//     gpu_double_run PROGRAM [ARGUMENT]...
//
// Starts a program whose processes find the double for processes, and ends with its exit code; or
// with 70 if a rule was violated, after the violations. The variables of gpu_double.h describe the
// GPUs, and are read here: programs cannot change them later.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "gpu/double/gpu_double.h"
#include "gpu/double/processes/server.h"

namespace {

// A folder for the socket, which is removed at the end.
class SocketFolder {
public:
    SocketFolder() {
        std::string made = (std::filesystem::temp_directory_path() / "gpu-double-XXXXXX").string();
        if (mkdtemp(made.data()) == nullptr) {
            std::perror(made.c_str());
            std::exit(70);
        }
        path_ = made;
    }
    ~SocketFolder() { remove(); }
    SocketFolder(const SocketFolder &) = delete;
    SocketFolder &operator=(const SocketFolder &) = delete;

    void remove() const noexcept {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string socket() const { return path_ / "socket"; }

private:
    std::filesystem::path path_;
};

volatile std::sig_atomic_t child = 0;

// The program ends, and then this one. The terminal sends SIGINT to both.
extern "C" void pass_on(int signal) {
    if (signal == SIGTERM && child > 0) kill(child, signal);
}

const SocketFolder *socket_folder = nullptr;

// Before the end of this process by a violation: the program ends, and nothing is left.
void end_program() {
    if (child > 0) kill(child, SIGTERM);
    if (child > 0) waitpid(child, nullptr, 0);
    socket_folder->remove();
}

pid_t start(char **program, const std::string &socket) {
    std::string folders = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    if (const char *others = std::getenv("LD_LIBRARY_PATH"); others != nullptr && *others != 0)
        folders += std::string(":") + others;
    setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
    setenv(gpu_double::processes::socket_variable, socket.c_str(), 1);
    pid_t started = -1;
    if (const int error = posix_spawnp(&started, program[0], nullptr, nullptr, program, environ)) {
        std::fprintf(stderr, "%s: %s\n", program[0], std::strerror(error));
        return -1;
    }
    return started;
}

}  // namespace

int main(int argc, char **argv) {
    const bool asks = argc > 1 && (std::strcmp(argv[1], "--help") == 0);
    if (asks || argc < 2 || argv[1][0] == '-') {
        std::fputs(
            "usage: gpu_double_run PROGRAM [ARGUMENT]...\n"
            "Runs a program, such as vescomm-run with its ranks, on a test double of CUDA and "
            "NCCL.\n"
            "Exit code: that of the program; 70: it broke a rule of CUDA or NCCL.\n"
            "docs/gpu.md, \"Without a GPU\", has the variables.\n",
            asks ? stdout : stderr);
        return asks ? 0 : 2;
    }
    // The timeouts of programs end waits, not the double.
    setenv("GPU_DOUBLE_SECONDS", "3600", 0);
    const SocketFolder folder;
    socket_folder = &folder;
    gpu_double::set_strict_end(end_program);
    // Until the process ends.
    auto *const server = new gpu_double::processes::Server(folder.socket());
    std::signal(SIGINT, pass_on);
    std::signal(SIGTERM, pass_on);
    child = start(argv + 1, folder.socket());
    if (child < 0) return 127;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    server->wait_for_connections();
    if (const std::string broken = gpu_double::take_violations(); !broken.empty()) {
        std::fprintf(stderr, "gpu double:\n%s", broken.c_str());
        return 70;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
