// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "comm/communicator.h"

namespace vescomm::internal {

// Collective: runs `work` on every rank, so that either all ranks continue or all throw. Returns
// the results of all ranks, by rank. If `work` threw on a rank, every rank throws the error of the
// first such rank, with its number.
std::vector<std::string> agree(Communicator &comm, std::string_view label, Deadline deadline,
                               const std::function<std::string()> &work);

// Throws MISMATCH if the value of a rank differs from that of rank 0.
void require_same(std::string_view label, std::string_view key,
                  const std::vector<std::string> &values);

// Collective: compares the descriptions of the call on all ranks: pairs of key and value, the same
// number on every rank. If two differ, throws MISMATCH on all ranks; the sentence names the ranks
// and the first pair that differs.
using Description = std::vector<std::pair<std::string, std::string>>;
void require_same(Communicator &comm, std::string_view label, Deadline deadline,
                  const Description &mine);

// Compares descriptions as above. In the same all-gather all ranks take a channel for the new
// object.
Channel require_same_and_take_channel(Communicator &comm, std::string_view label, Deadline deadline,
                                      const Description &mine);

}  // namespace vescomm::internal
