// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "planner/tools/report.h"

namespace vescomm::planner {
namespace {

// The system's Python. The first one in PATH may be an environment without matplotlib.
constexpr const char *python = "/usr/bin/python3";

// Places of the script, relative to the folder of this program: in an installation, which may have
// been moved, and in the build folder.
constexpr const char *scripts[] = {VESCOMM_PLAN_DATA "/draw_plan.py", "draw_plan.py"};

std::string find_script() {
    const std::filesystem::path folder =
        std::filesystem::read_symlink("/proc/self/exe").parent_path();
    std::string places;
    for (const char *script : scripts) {
        const std::filesystem::path path = (folder / script).lexically_normal();
        std::error_code missing;
        if (std::filesystem::exists(path, missing)) return path;
        places += (places.empty() ? "neither at " : " nor at ") + path.string();
    }
    throw std::runtime_error(fmt::format("draw_plan.py is {}; install vescomm-plan again", places));
}

// A temporary file that is already unlinked. It exists while it is open.
class Nameless {
public:
    explicit Nameless(const std::string &text) {
        std::string path =
            (std::filesystem::temp_directory_path() / "vescomm-plan-XXXXXX").string();
        descriptor_ = mkstemp(path.data());
        if (descriptor_ < 0) fail("cannot be made");
        unlink(path.c_str());
        for (std::size_t at = 0; at < text.size();) {
            const ssize_t wrote = write(descriptor_, text.data() + at, text.size() - at);
            if (wrote < 0 && errno == EINTR) continue;
            if (wrote <= 0) fail("cannot be written");
            at += static_cast<std::size_t>(wrote);
        }
        lseek(descriptor_, 0, SEEK_SET);
    }
    Nameless(const Nameless &) = delete;
    Nameless &operator=(const Nameless &) = delete;
    ~Nameless() { close(descriptor_); }

    int descriptor() const noexcept { return descriptor_; }

private:
    [[noreturn]] static void fail(const char *why) {
        throw std::runtime_error(
            fmt::format("a temporary file {}: {}", why, std::generic_category().message(errno)));
    }

    int descriptor_ = -1;
};

pid_t start(const std::string &picture_path, int input) {
    std::string words[] = {python, "-B", find_script(), "-", picture_path};
    char *arguments[] = {words[0].data(), words[1].data(), words[2].data(),
                         words[3].data(), words[4].data(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    pid_t child = 0;
    const int failure = posix_spawn(&child, python, &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failure != 0)
        throw std::runtime_error(fmt::format("{} cannot be started: {}", python,
                                             std::generic_category().message(failure)));
    return child;
}

}  // namespace

void draw(const std::string &json, const std::string &picture_path) {
    const Nameless input(json);
    const pid_t child = start(picture_path, input.descriptor());
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            throw std::runtime_error(
                fmt::format("draw_plan.py was lost: {}", std::generic_category().message(errno)));
    // The script has reported the cause on stderr.
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        throw std::runtime_error(fmt::format("{} could not be drawn", picture_path));
}

}  // namespace vescomm::planner
