// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The interface of a measured implementation of collectives. To add one, derive from
// Implementation, call serve() in main() (see worker/serve.h), and add a row to
// run/implementations.cc.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "perf/case/case.h"

namespace vescomm::perf {

// Thrown when an implementation lacks an operation. It is thrown on all ranks and is not a failure.
struct Unsupported : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// One-time costs in microseconds, negative if not applicable, and the library's own information.
struct Costs {
    double register_us = -1;  // registering memory
    double create_us = -1;  // creating the operation
    std::string algorithm;  // name that the library reports; may be empty
    double predicted_us = -1;  // time that the library predicts
};

class Implementation {
public:
    Implementation() = default;
    Implementation(const Implementation &) = delete;
    Implementation &operator=(const Implementation &) = delete;
    virtual ~Implementation() = default;

    virtual std::string version() const = 0;

    // Creates the operation of a case. Throws Unsupported. This and all following functions are
    // collective.
    virtual Costs prepare(const Case &what) = 0;
    // Return the memory of this rank's input and of its result, which may overlap. The extents are
    // those of the collective's row. On device memory they are copies on the host: output() makes
    // its copy in each call.
    virtual std::byte *input() = 0;
    virtual std::byte *output() = 0;
    // Announces that input() has been written. Not timed.
    virtual void input_written() {}
    // start() may block until the operation is complete if Case::non_blocking is false;
    // starts_non_blocking() then returns false.
    virtual void start() = 0;
    virtual void wait() = 0;
    virtual bool starts_non_blocking() const { return false; }
    // True: start() puts the operation on a stream, and one wait() waits for all that were started.
    virtual bool has_stream() const { return false; }
    // Announces that the result has been read. Not timed.
    virtual void settle() {}
    virtual void end() = 0;

    // Called repeatedly while this rank waits for other ranks outside of the library. Some
    // libraries need it to complete operations that other ranks wait for.
    virtual void progress() {}

    // A barrier, used when ranks share no memory for a Gate.
    virtual void meet() = 0;
};

}  // namespace vescomm::perf
