// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gil.h"

#include <unistd.h>

namespace vescomm::python {

void stop_thread() noexcept {
    for (;;) ::pause();
}

GilReleased::~GilReleased() {
    try {
        PyEval_RestoreThread(state_);
    } catch (...) {
        stop_thread();  // pthread_exit() unwinds
    }
}

GilTaken::GilTaken() noexcept {
    try {
        state_ = PyGILState_Ensure();
    } catch (...) {
        stop_thread();  // pthread_exit() unwinds
    }
}

}  // namespace vescomm::python
