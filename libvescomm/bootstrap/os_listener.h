// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/os_stream.h"

namespace vescomm::internal {

// Accepts connections on listening sockets. `local`: within this machine; such a listener keeps one
// spare descriptor and retries by itself when descriptors are used up. Throws Error.
std::unique_ptr<Listener> make_os_listener(asio::io_context &context,
                                           std::vector<Descriptor> descriptors,
                                           const Network::Accepted &accepted, TcpAddress address,
                                           bool local);

}  // namespace vescomm::internal
