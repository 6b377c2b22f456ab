// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// main() of a worker, whichever library it measures:
//
//     int main() { return serve("mpi", [](const Worker &worker) { return ...; }); }
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "perf/worker/implementation.h"

namespace vescomm::perf {

// What the coordinator told this process through its environment.
struct Worker {
    int rank = -1;  // -1: a launcher says it (MPI's)
    int ranks = 0;
    std::string folder;  // of the job; ranks on all its hosts see it
    std::string address;  // of this rank's host, for libraries that want one; "" on one host
    std::string shared;  // a SharedFile of shared_bytes for the ranks of this machine; "": none
    std::size_t shared_bytes = 0;

    static Worker of_environment();  // throws std::runtime_error
};

// Called once, before anything is measured; all ranks at once. Sets the rank if it is not known.
using MakeImplementation = std::function<std::unique_ptr<Implementation>(Worker &worker)>;

// Does what the coordinator says until it hangs up. Returns the exit code.
int serve(const std::string &name, const MakeImplementation &make);

}  // namespace vescomm::perf
