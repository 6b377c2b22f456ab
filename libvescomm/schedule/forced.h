// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string_view>

#include "schedule/algorithms.h"

namespace vescomm::internal {

// Algorithms that a user requires for a whole job, by collective.
class Forced {
public:
    // Parses VESCOMM_ALGORITHM: "all_reduce=two_phase,all_gather_v=ring", or an empty string.
    // Throws Error(INVALID_ARGUMENT) that names the wrong part and the valid names.
    static Forced parse(std::string_view text);

    // Returns an empty string if the library chooses.
    std::string_view of(Collective collective) const;

private:
    std::map<Collective, std::string_view> names_;
};

}  // namespace vescomm::internal
