// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "observe/flight_recorder.h"
#include "schedule/algorithms.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

// The flight recorder's word for an operation:
//
//     │ op: 4 bits │ type: 6 bits │ row in the table of algorithms: 8 bits │ bytes: 44 bits │
//
// `bytes`: of the whole vector; for an all_to_all_v, those that this rank sends. `type`:
// VESCOMM_TYPE_DEFAULT if the operation has none.
std::uint64_t flight_word(const AlgorithmEntry &algorithm, vescomm_type_t type, vescomm_op_t op,
                          std::uint64_t bytes);
// The word for a message, which has no row in the table.
std::uint64_t flight_word(Collective message, vescomm_type_t type, std::uint64_t bytes);

// True: reading the clock costs little in comparison with the operation.
inline bool takes_time(std::uint64_t flight_word) {
    return (flight_word & ((std::uint64_t{1} << 44) - 1)) >= 4096;
}

// Describes the latest operation if it is a collective: "all_gather_v of 22 f32 in all". Otherwise
// empty.
std::string latest_collective(const FlightRecorder &recorder);

// The communicator of the operations, and its state on this rank.
struct FlightHeader {
    int rank = 0;
    int ranks = 1;
    int communicator = 0;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;  // cause of the failure; empty: there is none
};

// Lines of JSON: the header, then one line for each operation.
std::string flight_text(const FlightHeader &header, const FlightRecorder &recorder);

}  // namespace vescomm::internal
