// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "perf/run/exit_codes.h"
#include "perf/run/hosts.h"
#include "perf/run/implementations.h"
#include "perf/run/process.h"
#include "perf/run/team.h"
#include "perf/worker/line_socket.h"
#include "perf/worker/shared_file.h"

namespace vescomm::perf {

// What all teams of a run have in common.
struct LocalSetting {
    std::string folder;  // where teams find each other when they start, removed by its owner
    int ranks = 1;
    std::int64_t largest_bytes = 0;  // of any case
    double timeout_seconds = 300;
    bool bind = true;  // each rank to a core of its own, if there are enough
    const Hosts *hosts = nullptr;  // nullptr: this one
};

// A team of processes on this machine. They end with this object, and with this process.
class LocalTeam final : public Team {
public:
    LocalTeam(const ImplementationRow &row, const LocalSetting &setting);
    ~LocalTeam() override;

    const std::string &name() const override { return name_; }
    const std::string &version() const override { return version_; }
    int nodes() const override { return setting_.hosts == nullptr ? 1 : setting_.hosts->count(); }
    std::vector<Answer> ask(const Command &command) override;

private:
    void start(const ImplementationRow &row);
    Launch launch() const;
    ProcessOptions options_of(int rank, const ImplementationRow &row) const;
    void gather_workers(int listener);
    // Waits for a worker to say something, or for one to end: that throws.
    void wait_for(const std::vector<int> &descriptors, double deadline, const std::string &what);
    [[noreturn]] void fail_gone(std::size_t rank);
    [[noreturn]] void fail(ExitCode code, const std::string &what);
    void end_processes(double patience);

    std::string name_;
    LocalSetting setting_;
    std::string folder_;
    bool launched_;  // one process starts all ranks
    SharedFile gate_;
    SharedFile log_;  // what the processes print
    std::unique_ptr<SharedFile> shared_;  // of limit
    int listener_for_vescomm_ = -1;
    std::string address_;
    std::vector<Process> processes_;
    std::vector<LineSocket> workers_;  // by rank
    std::string version_;
};

}  // namespace vescomm::perf
