// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "fsdp/checkpoint/agreement.h"
#include "vescomm/vescomm.h"

namespace vescomm::fsdp::checkpoint {

// The result of one step of a rank, which it sends to all ranks.
struct Report {
    vescomm_status_t status = VESCOMM_OK;
    std::string text;  // the sentence of an error
    std::string payload;  // ASCII; empty after an error
};

// Returns the report of an exception.
Report report_of(const std::exception_ptr &failure);

// Runs `step` on this rank, and exchanges its payload. Returns the payloads of all ranks, by rank.
// If the step has failed on a rank, throws its error on all ranks. `on_error` runs on this rank
// before that, after all ranks have ended their step. Collective.
std::vector<std::string> run_on_all(Agreement &agreement, const std::function<std::string()> &step,
                                    const std::function<void()> &on_error);

}  // namespace vescomm::fsdp::checkpoint
