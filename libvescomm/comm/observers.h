// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "execute/operation.h"
#include "observe/flight_recorder.h"
#include "observe/trace.h"

namespace vescomm::internal {

// Records of the operations of one communicator.
struct Observers {
    Trace trace;
    Counters counters;
    FlightRecorder recorder;
};

}  // namespace vescomm::internal
