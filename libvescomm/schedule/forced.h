// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string_view>

#include "schedule/algorithms.h"

namespace vescomm {

// Algorithms that a user insists on for a whole job, by collective.
class Forced {
public:
    // Reads VESCOMM_ALGORITHM: "all_reduce=two_phase,all_gather_v=ring", or nothing. Throws
    // Error(INVALID_ARGUMENT) that says which part is wrong, and what there is.
    static Forced parse(std::string_view text);

    // Empty: the library chooses.
    std::string_view of(Collective collective) const;

private:
    std::map<Collective, std::string_view> names_;
};

}  // namespace vescomm
