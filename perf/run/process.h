// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace vescomm::perf {

// How a process is started.
struct ProcessOptions {
    std::vector<std::string> words;  // the program, then its arguments
    std::vector<std::pair<std::string, std::string>> environment;  // besides that of this process
    std::string log;  // a file that exists: what it prints is appended
    std::string network;  // a network namespace by name; "": that of this process
    int inherit = -1;  // a descriptor that the process keeps
};

// A process that ends with this one, however this one ends.
class Process {
public:
    explicit Process(const ProcessOptions &options);
    Process(Process &&other) noexcept;
    Process &operator=(Process &&other) = delete;
    ~Process();  // kills

    int descriptor() const { return descriptor_; }  // readable once it has ended
    bool ended();
    bool wait_until(double seconds);  // of now(); true: it has ended
    std::string how() const;  // "exit code 1", "signal 9"; once it has ended
    void signal(int number) const;

private:
    pid_t pid_;
    int descriptor_;
    bool ended_ = false;
    int status_ = 0;
};

// Of a clock that only rises.
double now_seconds();

// Runs a program to its end. Throws Failure with what it said on standard error.
void run_program(const std::vector<std::string> &words);

}  // namespace vescomm::perf
