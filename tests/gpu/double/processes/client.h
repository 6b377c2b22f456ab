// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls of a program that gpu_double_run makes.
#pragma once

#include <mutex>

#include "gpu/double/processes/arguments.h"
#include "gpu/double/processes/functions.h"

namespace gpu_double::processes {

// The return value of a function, and what else it answers.
struct Answer {
    int result;
    Reader rest;
};
// Ends the process if gpu_double_run has gone.
Answer ask(Function function, const Writer &call);

// The calling thread has this device, also if its connection has ended.
void keep_device(int device);

// True for addresses that gpu_double_run can access: device memory and pinned memory.
bool is_shared(const void *address);

template <typename... Parameters>
int forward(Function function, int (*)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
    Writer call;
    (put_argument<Parameters>(call, arguments), ...);
    Answer answer = ask(function, call);
    (take_result<Parameters>(answer.rest, arguments), ...);
    return answer.result;
}

// The text that a function returns for a number. Valid until the process ends.
const char *text_of(Function function, int number);

}  // namespace gpu_double::processes

// The body of a function whose arguments are forwarded as they are.
#define FORWARD(function, ...)                                                       \
    return gpu_double::processes::forward(gpu_double::processes::Function::function, \
                                          &function __VA_OPT__(, ) __VA_ARGS__)
