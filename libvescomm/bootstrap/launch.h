// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm {

// Who this process is among those that a launcher started, and where rank 0 can be met.
struct Launch {
    int rank = 0;
    int ranks = 1;
    int local_rank = -1;  // among the ranks of this machine; -1: unknown
    // Where rank 0 listens. Empty and 0 for one rank.
    std::string host;
    std::uint16_t port = 0;
    // Never empty for several ranks. `secret_derived`: no launcher gave one, so it is the job's
    // identity, which others may know; see comm/connect.cc for where that is accepted.
    std::string secret;
    bool secret_derived = false;
    // At rank 0: a descriptor inherited from the launcher that listens already; -1: none.
    int listen_descriptor = -1;
    // Whose variables were used, and whose were set as well, for the log.
    std::string source;
    std::vector<std::string> ignored;
};

// Ports that are derived from a job's identity, where no launcher names one: below the range from
// which Linux serves outgoing connections (32768), and below the usual MASTER_PORT (29500).
constexpr std::uint16_t first_derived_port = 20000;
constexpr std::uint16_t derived_ports = 9000;

// Reads the variables of whoever started this process. Pure: asks nobody but `getenv`, which
// returns NULL for a variable that is not set; an empty one counts as not set.
//
// The first of these that is there wins; launch.cc has the table:
//
//     vescomm    VESCOMM_RANK, VESCOMM_RANKS, VESCOMM_ADDRESS, VESCOMM_LISTEN_DESCRIPTOR
//     torchrun   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT + 1 (the port itself is its store's)
//     Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//     Hydra      PMI_RANK, PMI_SIZE
//     Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS: last, since salloc leaves its
//                variables set around the other launchers
//     nobody     one rank
//
// With any of them VESCOMM_ADDRESS ("host:port") says where to meet, VESCOMM_PORT only the port,
// and VESCOMM_SECRET the secret. Where nobody says: 127.0.0.1 when all ranks share this machine;
// MASTER_ADDR; the first host of the step for Slurm; and a port derived from the job's identity.
//
// Throws Error (INVALID_ARGUMENT) naming the variable, its value, and what to set.
Launch read_launch(const std::function<const char *(const char *)> &getenv);

// The first host of a Slurm list: "node[003-005,7],other" gives "node003". Empty when malformed.
std::string first_slurm_host(std::string_view list);

}  // namespace vescomm
