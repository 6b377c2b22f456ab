// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "bootstrap/handshake.h"
#include "bootstrap/tcp_address.h"

namespace vescomm {

// A connection to rank 0 on which both ends trust each other.
struct Joined {
    Descriptor socket;
    Session session;
    std::string rest;  // bytes that came after the welcome
};

// Finds rank 0 at one of several addresses and joins it. Blocking, in the calling thread.
//
// Addresses that refuse, vanish or talk nonsense are tried again until the deadline: rank 0 may not
// have started yet. Throws TIMEOUT with the last reason, MISMATCH when rank 0 has another secret or
// version, and whatever rank 0 itself answers.
Joined join_rank_0(const std::vector<TcpAddress> &addresses, std::string_view secret, Claim claim,
                   Deadline deadline);

}  // namespace vescomm
