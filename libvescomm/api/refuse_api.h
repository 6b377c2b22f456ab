// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vescomm/vescomm.h"

// For a binding that finds an argument of a collective creation wrong before it can make the call:
// this rank takes part in the creation as with an argument that the library refuses, so that no
// rank waits for it. `sentence` becomes the error text. Exported for the Rust crates, but not part
// of the public API.
extern "C" __attribute__((visibility("default"))) vescomm_status_t vescomm_comm_refuse(
    vescomm_comm_t *comm, const char *sentence) noexcept;
