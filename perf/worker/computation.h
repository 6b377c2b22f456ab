// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Work of a known length that calls nobody, to hide communication behind.
#pragma once

#include <cstdint>

namespace vescomm::perf {

class Computation {
public:
    // Works for as long as it takes this core alone, so many microseconds: the same work every
    // time, which takes longer when somebody else gets the core meanwhile.
    void run(double us);

private:
    void calibrate();

    double steps_in_us_ = 0;
    std::uint64_t state_ = 1;
};

}  // namespace vescomm::perf
