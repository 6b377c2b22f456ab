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

namespace vescomm::internal {

// A host and a port, in the form that users write.
struct TcpAddress {
    std::string host;  // a name, or an IPv4 or IPv6 address without brackets
    std::uint16_t port = 0;

    bool operator==(const TcpAddress &) const = default;
};

// "host:port", with brackets around an IPv6 address.
std::string to_text(const TcpAddress &address);

// Parses "host:port", "1.2.3.4:port" or "[::1]:port". Throws Error otherwise; its sentence begins
// with `what`: a variable with its value, or an option.
TcpAddress parse_tcp_address(std::string_view text, std::string_view what);

// An address in the form that connect() takes.
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;

    const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&storage); }
    int family() const { return storage.ss_family; }
};

// Converts a numeric address. Returns nothing for a name, with a sentence in `why`.
std::vector<SocketAddress> resolve_numeric(const TcpAddress &address, std::string &why);

// Resolves a host name to all its addresses. `done` is called once; it receives the reason if the
// name cannot be resolved now: a name may appear later, while machines start. A numeric address is
// resolved at once, in the calling thread; a name in a separate thread, because getaddrinfo() has
// no deadline.
using Resolved = std::function<void(std::vector<SocketAddress> found, std::string why)>;
void resolve_in_background(const TcpAddress &address, Resolved done);

// Opens listening sockets, non-blocking and close-on-exec.
//
// A numeric address of this machine, or "localhost", is used as given. Any other name means all
// interfaces: a machine's own name is often not the name by which others reach it. A numeric
// address that this machine does not have also means all interfaces, since it may be that of a
// gateway. Port 0 takes a free one. Throws Error (SYSTEM) naming the address, for example when the
// port is in use.
std::vector<Descriptor> listen_on(const TcpAddress &address);
// Listens at a numeric address, at the port of a socket that listens on all interfaces. Returns a
// closed descriptor if that is not possible.
Descriptor listen_beside(int everywhere, const std::string &host);

// A listening socket on a free port of all interfaces, and its addresses. Used by rank 0 when a
// foreign all-gather is the only connection between the ranks.
struct MeetingPoint {
    Descriptor listener;
    std::vector<TcpAddress> addresses;
};
MeetingPoint open_meeting_point();

// Copies a descriptor that listens for TCP; the original stays the caller's.
Descriptor copy_of_listener(int descriptor);

std::uint16_t port_of(int socket);

// The addresses at which other machines may reach a port of this one: those of its interfaces
// without link-local ones; loopback addresses last.
std::vector<TcpAddress> own_addresses(std::uint16_t port);

// The local address of a connection, or the address on which a socket listens.
TcpAddress local_address_of(int socket);

// True for an address that names this machine alone: 127.0.0.0/8, ::1 or "localhost".
bool is_loopback(std::string_view host);

// "1.2.3.4:5678" of the peer, or "an unknown address".
std::string peer_text(int socket);

// Name of the network interface that has this numeric address; empty if none has.
std::string interface_of(const std::string &host);

// Sets the socket options of control plane connections: no delay of small frames, and an error
// instead of endless retransmission to a machine that vanished.
void tune_connection(int socket, double silence_seconds);

}  // namespace vescomm::internal
