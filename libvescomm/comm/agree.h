// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "comm/communicator.h"

namespace vescomm {

// Collective: does some work of this rank's own and says how it went, so that either all ranks go
// on or all throw. `work` returns what this rank has to tell the others; the result is everyone's,
// by rank. When work threw on a rank, every rank throws that error, with the rank's number.
std::vector<std::string> agree(Communicator &comm, std::string_view label, Deadline deadline,
                               const std::function<std::string()> &work);

// Throws MISMATCH where the value of a rank is not that of rank 0.
void require_same(std::string_view label, std::string_view key,
                  const std::vector<std::string> &values);

// Collective: every rank describes what it was asked to do, in the same number of "key value"
// parts. Throws MISMATCH on all ranks when two differ, naming the ranks and the first part that
// does.
using Description = std::vector<std::pair<std::string, std::string>>;
void require_same(Communicator &comm, std::string_view label, Deadline deadline,
                  const Description &mine);

// The same; in the same round all ranks take a channel for what they make.
Channel require_same_and_take_channel(Communicator &comm, std::string_view label, Deadline deadline,
                                      const Description &mine);

}  // namespace vescomm
