// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A few numbers of every rank, for reports and checks.
#pragma once

#include <span>
#include <vector>

#include "vescomm/vescomm.hpp"

namespace train_gpt {

// Everyone's numbers by rank, [ranks][mine.size()]. Collective; ranks give equally many. Every call
// makes a buffer of its own, so that this is not for every step.
std::vector<std::vector<double>> gather(const vescomm::Communicator &comm,
                                        std::span<const double> mine);

}  // namespace train_gpt
