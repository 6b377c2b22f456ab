// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "perf/worker/protocol.h"

namespace vescomm::perf {

// The ranks of one implementation, as the coordinator uses them. They exist during the whole run.
class Team {
public:
    Team() = default;
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;
    virtual ~Team() = default;

    virtual const std::string &name() const = 0;
    virtual const std::string &version() const = 0;
    virtual int nodes() const = 0;

    // Sends a command to all ranks and returns their answers by rank. Throws Failure when a rank
    // fails, dies, or does not answer before the timeout.
    virtual std::vector<Answer> ask(const Command &command) = 0;
};

}  // namespace vescomm::perf
