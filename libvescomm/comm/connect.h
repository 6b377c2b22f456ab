// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace vescomm {

// The ways in which the ranks of a communicator find one another. All end in the same place: a TCP
// control plane, then transports.

struct CommOptions {
    double timeout_seconds = 0;  // 0: from the environment
    std::string node;  // empty: from the environment, or the system
    bool reproducible = false;  // or as the environment says
    std::string tag;  // tells apart communicators that are created at the same time
};

// Changes of `config` what the options set. `otherwise` says whose timeout 0 stands for. Throws.
void apply(const CommOptions &options, const char *otherwise, Config &config);

// The transports that a configuration asks for.
Communicator::MakeTransports transports_for(const Config &config);

// Explicit: rank 0 listens at "host:port", all know the secret.
std::shared_ptr<Communicator> connect_explicitly(int rank, int ranks, const std::string &address,
                                                 const std::string &secret,
                                                 const CommOptions &options);

// As a launcher left it in the environment.
std::shared_ptr<Communicator> connect_from_environment(const CommOptions &options);

// Through an all-gather of the caller's own, by which rank 0 tells where it listens and makes up a
// secret. Gathers `bytes` bytes of every rank into `all`; returns false when it failed.
using AllGather = std::function<bool(const void *mine, std::size_t bytes, void *all)>;
std::shared_ptr<Communicator> connect_through(int rank, int ranks, const AllGather &all_gather,
                                              const CommOptions &options);

}  // namespace vescomm
