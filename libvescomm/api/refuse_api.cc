// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "api/refuse_api.h"

#include "api/guard.h"
#include "api/handles.h"
#include "comm/collective_create.h"

using namespace vescomm::internal;

vescomm_status_t vescomm_comm_refuse(vescomm_comm_t *comm, const char *sentence) noexcept {
    return guarded([&] {
        require(comm, "vescomm_comm_refuse", "comm");
        require(sentence, "vescomm_comm_refuse", "sentence");
        collective_create(*comm->value,
                          [&] { throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, sentence); });
    });
}
