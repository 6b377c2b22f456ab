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

namespace vescomm {

// The ranks of one machine, from the first start to the last word.
//
// One thread waits for everything: output of ranks, room in our own streams, signals, and the end
// of processes. A failure, of a rank or of a start, ends all ranks: those that do not end by
// themselves get SIGTERM, then SIGKILL.
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
    void wait_for_news();
    void copy_output(Stream &stream);
    void take_signals();
    void forward(int signal, bool from_terminal);
    void take_ended();
    void note_end(const Rank &rank, const siginfo_t &how);
    void end_all(int exit_code, double seconds);
    void signal_if_due();
    void reap_what_was_killed();
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
    std::vector<pid_t> killed_groups_;  // may have members that are not reaped yet
    int exit_code_ = 0;
    int interrupts_ = 0;
    bool ending_ = false;
    bool asked_to_end_ = false;
    std::optional<Deadline> signal_at_;
};

}  // namespace vescomm
