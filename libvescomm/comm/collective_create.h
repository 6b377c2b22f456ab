// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace vescomm {

// Collective: makes something in rounds of the control plane. A rank that cannot take part throws
// why from `make`: its arguments are wrong, or it lacks something. So that the others need not wait
// for it, it takes part in one more round. Where they are in another, everyone's communicator
// breaks, and they are told why; where all have thrown the same, nothing else happens.
void collective_create(Communicator &comm, const std::function<void()> &make);

}  // namespace vescomm
