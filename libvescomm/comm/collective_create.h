// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace vescomm::internal {

// The part of collective_create() that does not depend on the type of `make`.
void create_or_refuse(Communicator &comm, const std::function<void()> &make);

// Collective: runs `make`, which creates an object by all-gathers of the control plane. `make`
// throws on a rank that cannot take part: its arguments are wrong, or it lacks a resource. That
// rank then takes part in one more all-gather, whose label gives the reason, so that no rank waits
// for it. If the other ranks are in a different all-gather, the communicator breaks on all ranks
// with that reason. If all ranks have thrown, nothing else happens.
template <typename Make>
void collective_create(Communicator &comm, Make &&make) {
    // A reference to `make`: nothing is allocated here, where a failure would not be reported.
    const std::function<void()> call = std::ref(make);
    create_or_refuse(comm, call);
}

}  // namespace vescomm::internal
