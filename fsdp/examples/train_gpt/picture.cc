// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/picture.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace train_gpt {

namespace {

// The system's Python. The first one in PATH may be an environment without matplotlib.
constexpr const char *python = "/usr/bin/python3";

// Paths of the script when installed and in the source tree, both set by Meson.
constexpr const char *scripts[] = {TRAIN_GPT_PLOT_INSTALLED, TRAIN_GPT_PLOT_SOURCE};

std::string find_script() {
    std::error_code missing;
    for (const char *script : scripts)
        if (std::filesystem::exists(script, missing)) return script;
    throw std::runtime_error(
        fmt::format("plot_loss.py is neither at {} nor at {}; install "
                    "train_gpt again",
                    scripts[0], scripts[1]));
}

}  // namespace

void draw_loss(const std::string &json_path, const std::string &picture_path) {
    std::string words[] = {python, find_script(), json_path, picture_path};
    char *arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         nullptr};
    pid_t child = 0;
    int failure = posix_spawn(&child, python, nullptr, nullptr, arguments, environ);
    if (failure != 0)
        throw std::runtime_error(fmt::format("{} cannot be started: {}", python,
                                             std::generic_category().message(failure)));
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            throw std::runtime_error(
                fmt::format("{} was lost: {}", words[1], std::generic_category().message(errno)));
    // The script has reported the cause on stderr.
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        throw std::runtime_error(fmt::format("{} failed", words[1]));
}

}  // namespace train_gpt
