// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm-run: starts the ranks of a job on this machine.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <variant>

#include "tools/run_job.h"
#include "tools/run_options.h"

namespace {

// Opens closed standard streams: otherwise the next pipe would get the descriptor of one.
void open_standard_streams() {
    int number;
    do number = open("/dev/null", O_RDWR);
    while (number >= 0 && number <= STDERR_FILENO);
    if (number > STDERR_FILENO) close(number);
}

}  // namespace

int main(int argc, char **argv) {
    open_standard_streams();
    const auto given = vescomm::internal::read_run_options(argc, argv);
    if (const auto *answer = std::get_if<vescomm::internal::RunAnswer>(&given)) {
        fmt::print(answer->exit_code == 0 ? stdout : stderr, "{}", answer->text);
        return answer->exit_code;
    }
    try {
        return vescomm::internal::Job(std::get<vescomm::internal::RunOptions>(given)).run();
    } catch (const std::exception &error) {
        fmt::print(stderr, "vescomm-run: {}\n", error.what());
        return 1;
    }
}
