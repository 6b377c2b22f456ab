// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vescomm::internal {

// Sentences of the errors that end a wait of this rank. `what` is the call.

// The wait took `seconds`. `peers`: the ranks that it is for; empty: none. `obstacle`: see
// Operation.
std::string timeout_sentence(int rank, const std::string &what, double seconds,
                             const std::vector<int> &peers, const std::string &obstacle);

// `peer` has left, and the wait is for it.
std::string finalized_sentence(int rank, const std::string &what, int peer);

}  // namespace vescomm::internal
