// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>

#include "comm/communicator.h"
#include "comm/connect.h"

namespace vescomm {

// Communicators made of the ranks of another one. They share its session: connections, control
// thread and descriptors. All of these are collective and blocking.

// Ranks with the same color make one, ordered by key and then by rank. A negative color: this rank
// is in none, and gets nullptr.
std::shared_ptr<Communicator> split(Communicator &comm, int color, int key,
                                    const CommOptions &options);

// The same ranks in the same order.
std::shared_ptr<Communicator> duplicate(Communicator &comm, const CommOptions &options);

// The ranks of a broken communicator that still live, in the same order. `failed`: ranks that are
// to be left out although they may live; the same on every rank.
std::shared_ptr<Communicator> shrink(Communicator &comm, const std::set<int> &failed);

}  // namespace vescomm
