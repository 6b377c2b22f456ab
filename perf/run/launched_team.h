// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "perf/run/team.h"
#include "perf/worker/service.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

// Exchanges lines of text between rank 0 and the ranks of a communicator, by collectives.
class LineExchange {
public:
    explicit LineExchange(const Communicator &comm);

    std::string broadcast(std::string line);  // returns the line of rank 0 on every rank
    std::vector<std::string> gather(std::string line);  // returns the lines of all ranks

private:
    struct Piece;

    int rank_;
    int ranks_;
    Buffer command_;
    Buffer answers_;
    Request broadcast_;
    Request gather_;
};

// The ranks that torchrun, mpirun, srun or vescomm-run started. It measures only vescomm, and rank
// 0 coordinates through a vescomm communicator.
class LaunchedTeam final : public Team {
public:
    explicit LaunchedTeam(Communicator &comm);
    ~LaunchedTeam() override;

    const std::string &name() const override { return name_; }
    const std::string &version() const override { return version_; }
    int nodes() const override { return comm_.info().nodes; }
    std::vector<Answer> ask(const Command &command) override;  // on rank 0 only

    // Executes the commands of rank 0 until its team is destroyed. On all other ranks.
    void follow();

private:
    std::vector<Answer> obey(const std::string &line);

    std::string name_ = "vescomm";
    std::string version_;
    Communicator &comm_;
    LineExchange exchange_;
    std::unique_ptr<Implementation> implementation_;
    Service service_;
    int exceptions_ = std::uncaught_exceptions();
};

// Returns true if a launcher started this process as one of several ranks (docs/launching.md).
bool launched();

}  // namespace vescomm::perf
