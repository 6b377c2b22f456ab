// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace vescomm::perf {

// Options to start a process.
struct ProcessOptions {
    std::vector<std::string> words;  // the program, then its arguments
    std::vector<std::pair<std::string, std::string>> environment;  // added to that of this process
    std::string log;  // an existing file, to which output is appended
    std::string network;  // name of a network namespace; "": that of this process
    int inherit = -1;  // a descriptor that the process inherits; -1: none
};

// A child process. It ends at the latest when this process ends for any reason.
class Process {
public:
    explicit Process(const ProcessOptions &options);
    Process(Process &&other) noexcept;
    Process &operator=(Process &&other) = delete;
    ~Process();  // kills

    int descriptor() const { return descriptor_; }  // readable once the process has ended
    bool ended();
    bool wait_until(double seconds);  // of now_seconds(); true: the process has ended
    std::string how() const;  // "exit code 1", "signal 9"; valid once the process has ended
    void signal(int number) const;

private:
    pid_t pid_;
    int descriptor_;
    bool ended_ = false;
    int status_ = 0;
};

// Returns the time of a monotonic clock.
double now_seconds();

// Runs a program until it ends. Throws Failure with its output if it fails.
void run_program(const std::vector<std::string> &words);

}  // namespace vescomm::perf
