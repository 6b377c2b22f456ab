// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/interrupt.h"

#include <mutex>

namespace vescomm::internal {

namespace {

std::mutex mutex;
// Guarded by `mutex`.
vescomm_interrupt_function_t function = nullptr;
void *context = nullptr;

}  // namespace

void set_interrupt(vescomm_interrupt_function_t to, void *to_context) {
    const std::lock_guard lock(mutex);
    function = to;
    context = to_context;
}

bool can_interrupt() {
    const std::lock_guard lock(mutex);
    return function != nullptr;
}

bool interrupted() {
    vescomm_interrupt_function_t asked = nullptr;
    void *with = nullptr;
    {
        const std::lock_guard lock(mutex);
        asked = function;
        with = context;
    }
    return asked != nullptr && asked(with) != 0;
}

}  // namespace vescomm::internal
