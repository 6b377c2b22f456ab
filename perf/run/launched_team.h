// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "perf/run/team.h"
#include "perf/worker/service.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

// Lines between rank 0 and the ranks of a communicator, by its own collectives.
class LineExchange {
public:
    explicit LineExchange(const Communicator &comm);

    std::string broadcast(std::string line);  // everyone gets rank 0's
    std::vector<std::string> gather(std::string line);  // everyone gets everyone's

private:
    struct Piece;

    int rank_;
    int ranks_;
    Buffer told_;
    Buffer said_;
    Request tell_;
    Request say_;
};

// The ranks that torchrun, mpirun, srun or vescomm-run started: vescomm alone, coordinated by rank
// 0 through a vescomm communicator.
class LaunchedTeam final : public Team {
public:
    explicit LaunchedTeam(Communicator &comm);
    ~LaunchedTeam() override;

    const std::string &name() const override { return name_; }
    const std::string &version() const override { return version_; }
    int nodes() const override { return comm_.info().nodes; }
    std::vector<Answer> ask(const Command &command) override;  // of rank 0

    // What the other ranks do, until rank 0's team is gone.
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

// Whether a launcher started this process as one rank of several (docs/launching.md).
bool launched();

}  // namespace vescomm::perf
