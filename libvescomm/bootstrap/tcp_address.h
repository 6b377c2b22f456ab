// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/descriptor.h"

namespace vescomm {

// Where a program listens, as people write it.
struct TcpAddress {
    std::string host;  // a name, or an IPv4 or IPv6 address without brackets
    std::uint16_t port = 0;

    bool operator==(const TcpAddress &) const = default;
};

// "host:port", with brackets around an IPv6 address.
std::string to_text(const TcpAddress &address);

// Reads "host:port", "1.2.3.4:port" or "[::1]:port". `what` begins the sentence of the Error that
// is thrown otherwise: a variable with its value, or an option.
TcpAddress parse_tcp_address(std::string_view text, std::string_view what);

// What connect() takes.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;

    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
    int family() const { return storage.ss_family; }
};

// A numeric address; empty for a name, with a sentence in `why`.
std::vector<SocketAddress> resolve_numeric(const TcpAddress &address, std::string &why);

// Finds everything that a host name stands for. `done` is called once, with the reason where the
// name cannot be resolved now: a name may appear later, while machines start. A numeric address is
// resolved at once, in the calling thread; a name in a thread of its own, since getaddrinfo()
// cannot be given a deadline.
using Resolved = std::function<void(std::vector<SocketAddress> found, std::string why)>;
void resolve_in_background(const TcpAddress &address, Resolved done);

// Listening sockets, non-blocking and closed on exec.
//
// A numeric address, or "localhost", is listened on as it is. Any other name means all interfaces:
// what a machine calls itself is often not what others call it. So does a numeric address that this
// machine does not have, since it may be that of a gateway. Port 0 takes a free one.
// Throws Error (SYSTEM) naming the address, such as when the port is in use.
std::vector<Descriptor> listen_on(const TcpAddress &address);

// A socket that listens on a free port of all interfaces, and its addresses: for rank 0 where only
// somebody else's all-gather connects the ranks.
struct MeetingPoint {
    Descriptor listener;
    std::vector<TcpAddress> addresses;
};
MeetingPoint open_meeting_point();

// A copy of a descriptor that already listens, for TCP; the original stays the caller's.
Descriptor copy_of_listener(int descriptor);

std::uint16_t port_of(int socket);

// The addresses under which others may reach a port of this machine: those of its interfaces,
// without link-local ones; loopback last.
std::vector<TcpAddress> own_addresses(std::uint16_t port);

// This end of a connection, or the address on which a socket listens.
TcpAddress local_address_of(int socket);

// Whether an address is one of this machine alone: 127.0.0.0/8, ::1 or "localhost".
bool is_loopback(std::string_view host);

// "1.2.3.4:5678" of the other end, or "an unknown address".
std::string peer_text(int socket);

// Name of the network interface that has this numeric address; empty: none.
std::string interface_of(const std::string &host);

// What every connection of the control plane wants: no delay of small frames, and an error instead
// of endless retransmission to a machine that vanished.
void tune_connection(int socket, double silence_seconds);

}  // namespace vescomm
