// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>

#include "comm/communicator.h"
#include "comm/connect.h"

namespace vescomm::internal {

// Creates communicators from the ranks of another one. They share its session: connections, control
// thread and descriptors. All functions are collective and blocking.

// Ranks with the same color form a communicator, ordered by key, then by rank. A rank with a
// negative color is in no communicator and gets nullptr.
std::shared_ptr<Communicator> split(Communicator &comm, int color, int key,
                                    const CommOptions &options);

// The same ranks in the same order.
std::shared_ptr<Communicator> duplicate(Communicator &comm, const CommOptions &options);

// The ranks of a broken communicator that are still alive, in the same order. `failed`: ranks to
// exclude although they may be alive; the same on every rank.
std::shared_ptr<Communicator> shrink(Communicator &comm, const std::set<int> &failed);

}  // namespace vescomm::internal
