// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_ranks.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

namespace vescomm::internal {

namespace {

pid_t target_of(const RunningRank &rank) {
    return rank.own_group ? -rank.id : rank.id;
}

}  // namespace

RunningRanks::~RunningRanks() {
    signal(SIGKILL);
    for (const RunningRank &rank : running_) waitpid(rank.id, nullptr, 0);
}

std::optional<RunningRank> RunningRanks::find(pid_t id) const {
    const auto found = std::ranges::find(running_, id, &RunningRank::id);
    return found == running_.end() ? std::nullopt : std::optional(*found);
}

void RunningRanks::remove(pid_t id) {
    std::erase_if(running_, [id](const RunningRank &rank) { return rank.id == id; });
}

std::string RunningRanks::list() const {
    std::string text;
    for (const RunningRank &rank : running_) text += " " + std::to_string(rank.rank);
    return text;
}

void RunningRanks::signal(int signal) {
    for (const RunningRank &rank : running_) kill(target_of(rank), signal);
}

void RunningRanks::forward(int signal, bool from_terminal) {
    for (const RunningRank &rank : running_)
        if (rank.own_group || !from_terminal) kill(target_of(rank), signal);
}

void RunningRanks::kill_group_of(const RunningRank &rank) {
    if (rank.own_group && kill(-rank.id, SIGKILL) == 0) killed_groups_.push_back(rank.id);
}

bool RunningRanks::reap_killed_groups() {
    std::erase_if(killed_groups_, [](pid_t group) {
        while (waitpid(-group, nullptr, WNOHANG) > 0) {
        }
        return kill(-group, 0) != 0 && errno == ESRCH;
    });
    return killed_groups_.empty();
}

}  // namespace vescomm::internal
