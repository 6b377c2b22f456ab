// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/deadline.h"
#include "comm/communicator.h"
#include "layout/layout.h"

namespace vescomm::internal {

// Collective: throws MISMATCH on all ranks if their layouts differ; the sentence names two ranks
// and the first difference. `label` says what is created.
void require_same_layout(Communicator &comm, const std::string &label, Deadline deadline,
                         const Layout &layout);

}  // namespace vescomm::internal
