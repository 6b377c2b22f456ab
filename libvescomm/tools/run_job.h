// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "tools/run_options.h"
#include "tools/run_output.h"
#include "tools/run_process.h"

namespace vescomm::internal {

// The ranks of a job on one machine, from their start to the end of their output.
//
// One thread waits for all events: output of ranks, space in the launcher's own streams, signals,
// and the end of processes. If a rank fails or cannot be started, all ranks are ended, unless
// min_ranks of them are left: ranks that do not end by themselves get SIGTERM, then SIGKILL.
class Job {
public:
    explicit Job(const RunOptions &options);
    ~Job();

    // Starts the ranks and returns the exit code once all have ended.
    int run();

private:
    struct Stream {
        Descriptor pipe;
        LineWriter lines;
        OutputSink &sink;
    };
    struct Rank {
        int rank;
        pid_t id;
        bool own_group;
    };

    void start_ranks();
    ProcessPlan plan_for(int local_rank, const std::string &listener) const;
    void wait_for_events();
    void copy_output(Stream &stream);
    void handle_signals();
    void forward(int signal, bool from_terminal);
    void handle_ended();
    void note_end(const Rank &rank, const siginfo_t &how);
    void end_all(int exit_code, double seconds);
    void signal_if_due();
    void reap_killed_groups();
    void signal_ranks(int signal);
    void flush();
    void say(const std::string &text);

    const RunOptions &options_;
    std::string host_;
    std::string port_;
    std::string next_port_;
    std::string secret_;
    std::vector<cpu_set_t> cores_;
    Descriptor listener_;
    Descriptor signals_;
    sigset_t signal_mask_;

    OutputSink out_;
    OutputSink err_;
    std::list<Stream> streams_;
    std::vector<Rank> running_;
    std::vector<pid_t> killed_groups_;  // process groups that may have members to reap
    int exit_code_ = 0;
    int failed_ = 0;  // ranks that failed before the others were ended
    int first_failure_ = 0;  // exit code of the first of them
    int interrupts_ = 0;  // SIGINT and SIGTERM received
    bool ending_ = false;  // ranks are being ended
    bool asked_to_end_ = false;  // SIGTERM was sent to the ranks
    std::optional<Deadline> signal_at_;  // time of the next signal to the ranks
};

}  // namespace vescomm::internal
