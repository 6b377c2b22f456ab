// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace vescomm::internal {

// Creates a communicator from an address, from the environment, or through an all-gather of the
// caller. All three connect the TCP control plane first, then the transports.

struct CommOptions {
    double timeout_seconds = 0;  // 0: as the environment says
    std::string node;  // empty: from the environment, or the system
    bool reproducible = false;  // false: as the environment says
    std::string tag;  // distinguishes communicators that are created at the same time
};

// Applies the options to `config`. `otherwise`: the meaning of timeout 0, for the error sentence.
// Throws Error (INVALID_ARGUMENT).
void apply(const CommOptions &options, const char *otherwise, Config &config);

// Makes the transports that `config` selects.
Communicator::MakeTransports transports_for(const Config &config);

// Rank 0 listens at `address`, "host:port". All ranks give the same secret.
std::shared_ptr<Communicator> connect_explicitly(int rank, int ranks, const std::string &address,
                                                 const std::string &secret,
                                                 const CommOptions &options);

// Reads the variables that a launcher has set.
std::shared_ptr<Communicator> connect_from_environment(const CommOptions &options);

// Rank 0 sends its addresses and a random secret through `all_gather`, a function of the caller. It
// gathers `bytes` bytes of every rank into `all`, and returns false on failure.
using AllGather = std::function<bool(const void *mine, std::size_t bytes, void *all)>;
std::shared_ptr<Communicator> connect_through(int rank, int ranks, const AllGather &all_gather,
                                              const CommOptions &options);

}  // namespace vescomm::internal
