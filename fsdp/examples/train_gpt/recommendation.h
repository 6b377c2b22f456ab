// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The preset that the engine recommends for the model.
#pragma once

#include <cstdint>
#include <string>

#include "vescomm/fsdp.hpp"

namespace train_gpt {

// Returns a line for the terminal, also if no preset fits.
std::string recommendation_text(const vescomm::fsdp::Spec &spec, const vescomm_comm_info_t &comm,
                                double mebibytes, int micro_batches);

}  // namespace train_gpt
