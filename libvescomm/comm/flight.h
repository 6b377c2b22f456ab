// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "observe/flight_recorder.h"
#include "schedule/algorithms.h"
#include "vescomm/vescomm.h"

namespace vescomm {

// What the flight recorder keeps of an operation, in one word:
//
//     │ op: 4 bits │ type + 1: 6 bits │ row in the table of algorithms: 8 bits │ bytes: 44 bits │
//
// Bytes are those of the whole vector; of an all_to_all_v those that this rank sends. Type -1:
// none.
std::uint64_t flight_word(const AlgorithmEntry &algorithm, vescomm_type_t type, vescomm_op_t op,
                          std::uint64_t bytes);
// Of a message, which has no row.
std::uint64_t flight_word(Collective message, vescomm_type_t type, std::uint64_t bytes);

// Whether a look at the clock is nothing beside the operation.
inline bool takes_time(std::uint64_t flight_word) {
    return (flight_word & ((std::uint64_t{1} << 44) - 1)) >= 4096;
}

// Whose operations they are, and how it ended for this rank.
struct FlightHeader {
    int rank = 0;
    int ranks = 1;
    int communicator = 0;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;  // empty: it goes on
};

// A line of JSON with the header, and one for each operation.
std::string flight_text(const FlightHeader &header, const FlightRecorder &recorder);

}  // namespace vescomm
