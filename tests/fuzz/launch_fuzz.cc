// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Launch variables (bootstrap/launch.h). The input is an environment: a line NAME=VALUE for each
// variable; lines without = are lists of Slurm hosts.
//
// Invariants: an accepted launch has a rank below the number of ranks, and several ranks have a
// meeting point and a secret; an error is a sentence; an empty variable counts as not set.
#include "bootstrap/launch.h"

#include <map>

#include "base/error.h"
#include "bootstrap/tcp_address.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

using Variables = std::map<std::string, std::string, std::less<>>;

// The variables that a launch may read, set to empty text.
const char *const names[] = {
    "VESCOMM_RANK", "VESCOMM_RANKS", "VESCOMM_ADDRESS", "VESCOMM_SECRET", "VESCOMM_PORT",
    "RANK",         "WORLD_SIZE",    "MASTER_ADDR",     "MASTER_PORT",    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",     "SLURM_PROCID",  "SLURM_STEP_ID",   "PMIX_RANK",      "LOCAL_RANK",
};

Launch launch_in(const Variables &variables) {
    return read_launch([&](const char *name) -> const char * {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

void check(const Launch &launch) {
    require(launch.ranks >= 1 && launch.rank >= 0 && launch.rank < launch.ranks,
            "a rank is below the number of ranks");
    require(launch.local_rank >= -1 && launch.listen_descriptor >= -1, "-1 stands for unknown");
    require(!launch.source.empty(), "the launcher has a name, or is nobody");
    if (launch.ranks == 1) return;
    require(!launch.host.empty() && launch.port != 0, "several ranks have a meeting point");
    require(!launch.secret.empty(), "several ranks have a secret");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    Variables variables;
    while (!input.empty()) {
        const std::string_view line = input.until('\n');
        const std::size_t equals = line.find('=');
        if (equals == std::string_view::npos) {
            const std::string host = first_slurm_host(line);
            require(host.find_first_of("[],") == std::string::npos, "a host name has no brackets");
            continue;
        }
        // Values in an environment have no zero bytes.
        const std::string_view value = line.substr(equals + 1);
        variables[std::string(line.substr(0, equals))] = value.substr(0, value.find('\0'));
    }
    std::string first, again;
    try {
        const Launch launch = launch_in(variables);
        check(launch);
        first =
            launch.source + " " + launch.host + " " + std::to_string(launch.port) + launch.secret;
    } catch (const Error &error) {
        require(error.status == VESCOMM_ERROR_INVALID_ARGUMENT, "the variables are to blame");
        require(*error.what() != '\0', "an error has a sentence");
        first = error.what();
    }
    for (const char *name : names) variables.try_emplace(name, "");
    try {
        const Launch launch = launch_in(variables);
        again =
            launch.source + " " + launch.host + " " + std::to_string(launch.port) + launch.secret;
    } catch (const Error &error) {
        again = error.what();
    }
    require(first == again, "an empty variable counts as not set");
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    return {
        {"nobody", ""},
        {"vescomm",
         "VESCOMM_RANK=1\nVESCOMM_RANKS=4\nVESCOMM_ADDRESS=[::1]:5000\nVESCOMM_SECRET=s\n"},
        {"vescomm-rank-0",
         "VESCOMM_RANK=0\nVESCOMM_RANKS=2\nVESCOMM_ADDRESS=host:65535\n"
         "VESCOMM_LISTEN_DESCRIPTOR=5\nLOCAL_RANK=0\n"},
        {"vescomm-half", "VESCOMM_RANK=1\n"},
        {"vescomm-no-address", "VESCOMM_RANK=1\nVESCOMM_RANKS=2\n"},
        {"torchrun",
         "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=3\nMASTER_ADDR=node-1\nMASTER_PORT=29500\n"
         "TORCHELASTIC_RUN_ID=none\nTORCHELASTIC_RESTART_COUNT=0\n"},
        {"torchrun-no-port", "RANK=3\nWORLD_SIZE=4\nMASTER_ADDR=node-1\n"},
        {"torchrun-last-port", "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=65535\n"},
        {"torchrun-no-host", "RANK=0\nWORLD_SIZE=2\nMASTER_PORT=1\n"},
        {"open-mpi",
         "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\n"
         "OMPI_COMM_WORLD_LOCAL_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=0\n"
         "PMIX_NAMESPACE=job\nPMIX_RANK=0\n"},
        {"open-mpi-several-nodes", "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\n"},
        {"hydra", "PMI_RANK=1\nPMI_SIZE=2\nMPI_LOCALNRANKS=2\nMPI_LOCALRANKID=1\nUSER=me\n"},
        {"slurm",
         "SLURM_PROCID=2\nSLURM_STEP_NUM_TASKS=8\nSLURM_STEP_ID=0\nSLURM_JOB_ID=7\n"
         "SLURM_STEP_NODELIST=node[003-005,7],other\nSLURM_STEP_NUM_NODES=4\n"},
        {"slurm-one-node", "SLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_STEP_ID=0\nSLURM_NNODES=1\n"},
        {"slurm-wrong-list",
         "SLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_STEP_ID=0\n"
         "SLURM_JOB_NODELIST=node[]\n"},
        {"two-launchers",
         "RANK=0\nWORLD_SIZE=1\nSLURM_PROCID=0\nSLURM_NTASKS=2\n"
         "SLURM_STEP_ID=0\nVESCOMM_PORT=77\n"},
        {"pmix-alone", "PMIX_RANK=0\n"},
        {"rank-too-large", "RANK=4\nWORLD_SIZE=4\n"},
        {"no-number", "RANK=12abc\nWORLD_SIZE=99999999999\n"},
        {"slurm-lists", "a\na,b\na[1-3]b[4]\na[1[2]\na]\na[\n[,]\n"},
    };
}
