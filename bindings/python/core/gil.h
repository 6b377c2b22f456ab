// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads that leave the GIL, and take it again.
//
// A thread that takes the GIL while the interpreter ends does not get it. Python 3.14 stops the
// thread. Earlier versions end it by pthread_exit(), which unwinds its frames, and ends the process
// in the first function that is noexcept. Here such threads stop in all versions.
#pragma once

#include <nanobind/nanobind.h>

namespace vescomm::python {

// Waits until the process ends. The thread holds neither the GIL nor a lock.
[[noreturn]] void stop_thread() noexcept;

// Releases the GIL, and takes it at its end.
class GilReleased {
public:
    GilReleased() noexcept : state_(PyEval_SaveThread()) {}
    GilReleased(const GilReleased &) = delete;
    GilReleased &operator=(const GilReleased &) = delete;
    ~GilReleased();

private:
    PyThreadState *const state_;
};

// Takes the GIL, and releases it at its end.
class GilTaken {
public:
    GilTaken() noexcept;
    GilTaken(const GilTaken &) = delete;
    GilTaken &operator=(const GilTaken &) = delete;
    ~GilTaken() { PyGILState_Release(state_); }

private:
    PyGILState_STATE state_;
};

}  // namespace vescomm::python
