// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bootstrap/frame.h"
#include "bootstrap/network.h"

namespace vescomm::internal {

// The address at which a process waits for survivors, and the number of its listener. Numbers are
// random: a new listener of another process of the job may get the port of a process that has
// ended.
struct SurvivorListener {
    TcpAddress address = {};  // port 0: it does not listen
    std::uint64_t number = 0;
};

// The secret that processes and a listener for survivors prove to know. That of one listener is
// wrong for every other one.
inline std::string secret_of_listener(std::string_view secret, std::uint64_t number) {
    const FrameKey key = derived_key(secret, "listener for survivors " + std::to_string(number));
    return std::string(key.begin(), key.end());
}

}  // namespace vescomm::internal
