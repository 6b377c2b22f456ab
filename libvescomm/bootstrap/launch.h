// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::internal {

// The identity of this process among those that a launcher started, and the address of rank 0.
struct Launch {
    int rank = 0;
    int ranks = 1;
    int local_rank = -1;  // rank among the ranks of this machine; -1: unknown
    // Address on which rank 0 listens. Empty and 0 if there is one rank.
    std::string host;
    std::uint16_t port = 0;
    // Not empty if there are several ranks. `secret_derived`: no launcher gave a secret, so the
    // job's identity is used, which others may know; comm/connect.cc decides when that is accepted.
    std::string secret;
    bool secret_derived = false;
    // Rank 0: a listening descriptor inherited from the launcher; -1: none.
    int listen_descriptor = -1;
    // The launcher whose variables were used, and those whose variables were also set. For the log.
    std::string source;
    std::vector<std::string> ignored;
};

// Range of ports that are derived from a job's identity when no launcher names one. It lies below
// the range from which Linux serves outgoing connections (32768) and below the usual MASTER_PORT
// (29500).
constexpr std::uint16_t first_derived_port = 20000;
constexpr std::uint16_t derived_ports = 9000;

// Reads the variables of the launcher that started this process. Pure: calls only `getenv`, which
// returns NULL for a variable that is not set. An empty variable counts as not set.
//
// The first launcher in this order whose variables are set is used (table in launch.cc):
//
//     vescomm    VESCOMM_RANK, VESCOMM_RANKS, VESCOMM_ADDRESS, VESCOMM_LISTEN_DESCRIPTOR
//     torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT + 1 (the port itself is its store's)
//     Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//     Hydra      PMI_RANK, PMI_SIZE
//     Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS: last, since salloc leaves its
//                variables set around the other launchers
//     nobody     one rank
//
// VESCOMM_ADDRESS ("host:port") overrides the address of rank 0, VESCOMM_PORT its port alone, and
// VESCOMM_SECRET the secret, for every launcher. Default host: 127.0.0.1 if all ranks share this
// machine, else MASTER_ADDR, else the first host of the Slurm step. Default port: MASTER_PORT + 1
// if it is set, else derived from the job's identity.
//
// Throws Error (INVALID_ARGUMENT) naming the variable, its value, and the remedy.
Launch read_launch(const std::function<const char *(const char *)> &getenv);

// The first host of a Slurm list: "node[003-005,7],other" gives "node003". Empty when malformed.
std::string first_slurm_host(std::string_view list);

}  // namespace vescomm::internal
