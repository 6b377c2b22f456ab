// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/collective_create.h"

#include <new>

#include "base/error.h"
#include "bootstrap/gathering.h"

namespace vescomm::internal {

void create_or_refuse(Communicator &comm, const std::function<void()> &make) {
    const auto refuse = [&](const std::string &why) {
        try {
            // Ranks that have failed agree, also for different reasons.
            comm.gather(std::string(failed_call_label) + why, {}, comm.deadline());
        } catch (const Error &error) {
            // This rank knows the cause, and makes no further call that others could miss.
            comm.fail(error.status, error.what());
        }
    };
    try {
        make();
    } catch (const Error &error) {
        // All ranks have thrown a MISMATCH.
        if (error.status != VESCOMM_ERROR_MISMATCH && !comm.failure().broken())
            refuse(error.what());
        throw;
    } catch (const std::bad_alloc &) {
        try {
            refuse("it is out of memory");
        } catch (const std::bad_alloc &) {
            comm.run_out();
        }
        throw;
    } catch (const std::exception &error) {
        refuse(error.what());
        throw;
    }
}

}  // namespace vescomm::internal
