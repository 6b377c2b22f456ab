// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Gathers a few numbers of every rank, for reports and checks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vescomm/vescomm.hpp"

namespace train_gpt {

// Returns the numbers of all ranks, [ranks][mine.size()]. mine.size() is equal on all ranks. Every
// call creates a buffer, so it is too slow for every step. Collective.
std::vector<std::vector<double>> gather(const vescomm::Communicator &comm,
                                        std::span<const double> mine);

// Returns the number of the node of each rank. Collective.
std::vector<std::int32_t> nodes_of_ranks(const vescomm::Communicator &comm);

}  // namespace train_gpt
