// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/descriptor.h"

namespace vescomm::internal {

// A descriptor that a thread can poll and that other processes of the machine can make readable: a
// Unix datagram socket with a name in the abstract namespace. It takes one descriptor in its own
// process and none in the others.
//
// A process that discovers the name can only cause spurious wake-ups.
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

}  // namespace vescomm::internal
