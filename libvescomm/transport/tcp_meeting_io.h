// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstddef>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "bootstrap/tcp_address.h"
#include "transport/tcp_handshake.h"

namespace vescomm::internal {

// The address of a rank.
struct TcpPeer {
    bool wanted = false;  // a connection to it is needed
    TcpAddress address;
    TcpSession session{};
};

// An established connection that both ends have authenticated.
struct TcpEstablished {
    Descriptor socket;  // closed: there is no connection
    TcpKeys keys;
};

// The rank that a meeting is for: all its handshakes.
struct TcpSelf {
    FrameKey key;
    int rank = 0;
    bool encrypted = false;
    TcpSession session{};
};

// The ranks of a meeting, by rank.
struct TcpRanks {
    std::vector<TcpPeer> peers;
    std::vector<TcpEstablished> established;
    std::string last_problem;  // of any connection

    bool missing(std::size_t peer) const {
        return peers[peer].wanted && !established[peer].socket.open();
    }
};

// Attempts to reach one rank that may be under way at a time. When a flood has filled the queue of
// a listener, the kernel drops the first packet of an attempt and retransmits it a second later; a
// new attempt succeeds sooner.
inline constexpr std::size_t max_attempts = 4;

std::string rank_name(std::size_t rank);
// The text of an errno.
std::string reason(int code);
// Sets an option of IPPROTO_TCP.
void set_option(int socket, int option, int value);

// An empty socket always takes a few bytes. A peer that does not take them is not a rank.
bool send_all(int socket, const std::string &bytes);

enum class Read { some, nothing, ended };
// Reads at most `max` bytes: bytes after the handshake must stay in the socket.
Read read_some(int socket, std::size_t max, std::string &bytes, std::string &problem);

}  // namespace vescomm::internal
