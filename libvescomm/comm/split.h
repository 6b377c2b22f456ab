// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/connect.h"

namespace vescomm::internal {

// Creates communicators from the ranks of another one. They share its session: connections, control
// thread and descriptors. All functions are collective and blocking.

// The last part of a creation, collective over the new communicator.
using Complete = std::function<void(const std::shared_ptr<Communicator> &)>;

// Ranks with the same color form a communicator, ordered by key, then by rank. A rank with a
// negative color is in no communicator and gets nullptr. If the creation fails on a rank, all ranks
// of `comm` throw, also those of other colors: they would wait for that rank later. The creation
// ends at the deadline of `comm`, also if the timeout in `options` is longer, and when `comm`
// fails.
std::shared_ptr<Communicator> split(Communicator &comm, int color, int key,
                                    const CommOptions &options, const Complete &complete = {});

// The control plane of a part of the ranks of a communicator; see Control::subgroup(). If this rank
// cannot open it, the communicator breaks: the other ranks would wait until their deadline.
std::unique_ptr<Control> open_subgroup(Communicator &comm, const std::string &words,
                                       const std::vector<int> &ranks, Deadline deadline);

// The same ranks in the same order.
std::shared_ptr<Communicator> duplicate(Communicator &comm, const CommOptions &options,
                                        const Complete &complete = {});

// Calls `complete` with a communicator of the ranks of a broken one that are still alive, in the
// same order. `failed`: ranks to exclude although they may be alive; the same on every rank. If
// `complete`, which is collective, fails because another rank has died, the survivors shrink once
// more.
void shrink(Communicator &comm, const std::set<int> &failed,
            const std::function<void(std::shared_ptr<Communicator>)> &complete);

}  // namespace vescomm::internal
