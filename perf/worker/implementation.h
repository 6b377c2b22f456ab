// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What an implementation of the collectives offers to be measured. Adding one: derive, and call
// serve() in main() (see worker/serve.h); then a row in run/implementations.cc.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "perf/case/case.h"

namespace vescomm::perf {

// This implementation has no such operation: said on all ranks alike, and no failure.
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// What has to be paid once, in microseconds; negative where there is no such thing.
struct Costs {
    double register_us = -1;  // memory
    double create_us = -1;  // the operation
    // What a library says of it by itself: who does it, and how long that should take.
    std::string algorithm;
    double predicted_us = -1;
};

class Implementation {
public:
    Implementation() = default;
    Implementation(const Implementation &) = delete;
    Implementation &operator=(const Implementation &) = delete;
    virtual ~Implementation() = default;

    virtual std::string version() const = 0;

    // Collective: so are all that follow. Throws Unsupported.
    virtual Costs prepare(const Case &what) = 0;
    // Where this rank's input is to be written, and where its result will be; they may be the same
    // bytes. Extents are those of the collective's row.
    virtual std::byte *input() = 0;
    virtual std::byte *output() = 0;
    // start() may do everything, where the case does not ask for an operation that does not block;
    // then starts_eager() is false.
    virtual void start() = 0;
    virtual void wait() = 0;
    virtual bool starts_eager() const { return false; }
    // The result has been read. Not timed: the time in which a program uses it.
    virtual void settle() {}
    virtual void end() = 0;

    // Called now and then while this rank waits for others outside of its library, without which
    // some libraries leave what they still owe to others undone.
    virtual void progress() {}

    // Nobody leaves before everyone has come; used where ranks share no memory to do that.
    virtual void meet() = 0;
};

}  // namespace vescomm::perf
