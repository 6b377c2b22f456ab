// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Computation of known duration that makes no library calls, to overlap with communication.
#pragma once

#include <cstdint>

namespace vescomm::perf {

class Computation {
public:
    // Does work that takes `us` microseconds on an undisturbed core. The amount of work is the same
    // in every call, so it takes longer when another thread uses the core meanwhile.
    void run(double us);

private:
    void calibrate();

    double steps_in_us_ = 0;
    std::uint64_t state_ = 1;
};

}  // namespace vescomm::perf
