// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// main() of a worker:
//
//     int main() { return serve("mpi", [](const Worker &worker) { return ...; }); }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "perf/worker/implementation.h"

namespace vescomm::perf {

// Settings that the coordinator passes through the environment.
struct Worker {
    int rank = -1;  // -1: a launcher (MPI's) determines it
    int ranks = 0;
    std::string folder;  // of the job, visible to ranks on all its hosts
    std::string address;  // of this rank's host, for libraries that need one; "" on one host
    std::string shared;  // path of a SharedFile of shared_bytes for the machine's ranks; "": none
    std::size_t shared_bytes = 0;
    int threads = 1;  // ranks of this process, each in a thread; `rank` is the first one
    std::uint64_t padded_bytes = 0;  // of the largest case with padded shards; 0: unknown

    static Worker of_environment();  // throws std::runtime_error
};

// Called once by all ranks, before any measurement. Sets the rank if it is not known.
using MakeImplementation = std::function<std::unique_ptr<Implementation>(Worker &worker)>;

// Executes commands until the coordinator closes the connection. Returns the exit code. With
// several ranks in this process `make` is called in the thread of each.
int serve(const std::string &name, const MakeImplementation &make);

}  // namespace vescomm::perf
