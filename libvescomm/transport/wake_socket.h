// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/descriptor.h"

namespace vescomm {

// A descriptor that a thread can poll and that other processes of the machine make readable by its
// name: a Unix datagram socket in the abstract namespace. It takes one descriptor of its process,
// and none of the others.
//
// A process that finds out the name can only cause wake-ups for nothing.
class WakeSocket {
public:
    // Throws Error(SYSTEM).
    WakeSocket();

    const std::string &name() const { return name_; }
    int descriptor() const { return socket_.get(); }

    // Makes the socket of that name readable. Any thread.
    static void wake(const std::string &name) noexcept;

private:
    std::string name_;
    Descriptor socket_;
};

}  // namespace vescomm
