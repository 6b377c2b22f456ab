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

// Settings shared by all teams of a run.
struct LocalSetting {
    std::string folder;  // for the start of teams; removed by its owner
    int ranks = 1;
    std::int64_t largest_bytes = 0;  // of any case
    double timeout_seconds = 300;
    bool bind = true;  // bind each rank to its own core, if there are enough
    int threads = 1;  // ranks in each process; divides `ranks`
    std::uint64_t padded_bytes = 0;  // see Worker
    bool shares_devices = false;  // several ranks use one GPU
    const Hosts *hosts = nullptr;  // nullptr: this host
};

// A team of processes on this machine. They end with this object or with this process.
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
    // Waits until a descriptor is readable. Throws Failure when a process ends or time is over.
    void wait_for(const std::vector<int> &descriptors, double deadline, const std::string &what);
    [[noreturn]] void fail_gone(std::size_t rank);
    [[noreturn]] void fail(ExitCode code, const std::string &what);
    void end_processes(double patience);

    std::string name_;
    LocalSetting setting_;
    std::string folder_;
    bool launched_;  // true: one launcher process starts all ranks
    SharedFile gate_;
    SharedFile log_;  // output of the processes
    std::unique_ptr<SharedFile> shared_;  // memory of `limit`, otherwise null
    int listener_for_vescomm_ = -1;
    std::string address_;
    std::vector<Process> processes_;
    std::vector<LineSocket> workers_;  // by rank
    std::string version_;
};

}  // namespace vescomm::perf
