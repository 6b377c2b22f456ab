// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "tools/run_ending.h"
#include "tools/run_meeting.h"
#include "tools/run_options.h"
#include "tools/run_process.h"
#include "tools/run_ranks.h"
#include "tools/run_streams.h"

namespace vescomm::internal {

// The ranks of a job on one machine, from their start to the end of their output.
//
// One thread waits for all events: output of ranks, space in the launcher's own streams, signals,
// and the end of processes. If a rank fails or cannot be started, all ranks are ended, unless
// min_ranks of them are left: ranks that do not end by themselves get SIGTERM, then SIGKILL. SIGINT
// and SIGTERM are forwarded as a request to end: SIGKILL follows after the grace time, or at the
// second signal.
class Job {
public:
    explicit Job(const RunOptions &options);

    // Starts the ranks and returns the exit code once all have ended.
    int run();

private:
    void start_ranks();
    ProcessPlan plan_for(int local_rank, const std::string &listener) const;
    void wait_for_events();
    void handle_signals();
    void forward(int signal, bool from_terminal);
    bool request_end(int signal);
    void handle_ended();
    void note_end(const RunningRank &rank, const siginfo_t &how);
    void note_failure(int exit_code);
    bool enough_left() const;
    void kill_ranks();
    void end_all(int exit_code, double seconds);
    void signal_if_due();
    void reap_killed_groups();

    const RunOptions &options_;
    MeetingPlace meeting_;
    std::vector<cpu_set_t> cores_;
    Descriptor signals_;
    sigset_t signal_mask_;

    RankStreams streams_;
    RunningRanks ranks_;
    Ending ending_;
    int exit_code_ = 0;
    int failed_ = 0;  // ranks that failed before the others were ended
    int first_failure_ = 0;  // exit code of the first of them
    bool first_by_signal_ = false;  // a signal ended it
    std::optional<Deadline> repetition_;  // of the first SIGINT or SIGTERM received
    int request_ = 0;  // the signal with which the ranks were asked to end; 0: none
    bool killing_ = false;  // SIGKILL was sent to the ranks that were left
};

}  // namespace vescomm::internal
