// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/descriptor.h"
#include "tools/run_options.h"

namespace vescomm::internal {

// The address and the secret with which the ranks of a job connect.
class MeetingPlace {
public:
    // Listens for rank 0 if it is one of the ranks that are started here. Throws Error.
    explicit MeetingPlace(const RunOptions &options);

    const std::string &host() const { return host_; }
    std::uint16_t port() const { return port_; }
    const std::string &secret() const { return secret_; }
    // The listening socket that rank 0 inherits.
    const Descriptor &listener() const { return listener_; }
    // From here on only rank 0 listens: once it ends, connections are refused instead of waiting.
    void close_listener() { listener_ = Descriptor(); }

private:
    std::string host_;
    std::uint16_t port_ = 0;
    std::string secret_;
    Descriptor listener_;
};

}  // namespace vescomm::internal
