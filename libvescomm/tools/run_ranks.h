// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace vescomm::internal {

// A rank that runs on this machine.
struct RunningRank {
    int rank;
    pid_t id;
    bool own_group;  // a process group of its own
};

// The processes of the ranks that run, and the groups of processes that killed ranks left.
class RunningRanks {
public:
    RunningRanks() = default;
    // Kills and reaps the ranks that still run: only after an exception.
    ~RunningRanks();
    RunningRanks(const RunningRanks &) = delete;
    RunningRanks &operator=(const RunningRanks &) = delete;

    void add(const RunningRank &rank) { running_.push_back(rank); }
    bool empty() const { return running_.empty(); }
    std::size_t count() const { return running_.size(); }
    std::optional<RunningRank> find(pid_t id) const;
    void remove(pid_t id);
    // The numbers of the ranks, each after a space.
    std::string list() const;

    void signal(int signal);
    // A signal from the terminal has already reached the ranks in the launcher's own process group.
    void forward(int signal, bool from_terminal);

    // Kills the processes that a rank had started. The rank has ended and is not reaped yet, so the
    // number of its group is not reused.
    void kill_group_of(const RunningRank &rank);
    // Reaps killed processes, which become children of the launcher when their parents end. Returns
    // true if none is left.
    bool reap_killed_groups();

private:
    std::vector<RunningRank> running_;
    std::vector<pid_t> killed_groups_;  // may have members to reap
};

}  // namespace vescomm::internal
