// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs ranks as threads of this process, with handles of the C API for calls on arrays.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "api/handles.h"
#include "support/thread_ranks.h"

namespace vescomm::internal::testing_support {

void check(vescomm_status_t status);

// Collective.
std::unique_ptr<vescomm_comm> handle_of(const std::shared_ptr<Communicator> &comm);

// run_ranks() with handles of the C API. No rank runs `body` before every rank has a handle.
void run_array_ranks(const TestSetup &setup, const std::function<void(vescomm_comm_t *)> &body);

// Every rank is a member of all communicators. A failure of the first one ends the others.
void run_array_ranks(std::span<const TestSetup> setups,
                     const std::function<void(const std::vector<vescomm_comm_t *> &)> &body);

}  // namespace vescomm::internal::testing_support
