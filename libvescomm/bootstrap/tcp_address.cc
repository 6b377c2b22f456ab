// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_address.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "base/signals.h"
#include "base/system.h"

namespace vescomm::internal {

namespace {

struct Resolution {
    int code = EAI_AGAIN;
    std::vector<SocketAddress> found;
};

Resolution look_up(const TcpAddress &address, int flags) {
    Resolution result;
    result.code = EAI_NONAME;
    // glibc treats "*" as no name and returns loopback.
    if (address.host == "*") return result;
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo *list = nullptr;
    result.code =
        getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
    if (result.code != 0) return result;
    for (const addrinfo *entry = list; entry != nullptr; entry = entry->ai_next) {
        SocketAddress found;
        if (entry->ai_addrlen > sizeof found.storage) continue;
        std::memcpy(&found.storage, entry->ai_addr, entry->ai_addrlen);
        found.length = entry->ai_addrlen;
        result.found.push_back(found);
    }
    freeaddrinfo(list);
    return result;
}

// Sockets of one user that both share may have the same port.
void share_port(int socket, bool share) {
    const int value = share ? 1 : 0;
    setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &value, sizeof value);
}

Descriptor try_to_listen(const SocketAddress &address, bool shares_port = false) {
    Descriptor listener(
        socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!listener.open()) return listener;
    const int yes = 1;
    setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (shares_port) share_port(listener.get(), true);
    if (address.family() == AF_INET6) {
        const auto *inet6 = reinterpret_cast<const sockaddr_in6 *>(&address.storage);
        const int only = IN6_IS_ADDR_UNSPECIFIED(&inet6->sin6_addr) ? 0 : 1;
        setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
    }
    if (bind(listener.get(), address.get(), address.length) != 0 ||
        listen(listener.get(), SOMAXCONN) != 0) {
        const int code = errno;
        listener = Descriptor();
        errno = code;
    }
    return listener;
}

std::uint16_t port_number(const SocketAddress &address) {
    if (address.family() == AF_INET6)
        return ntohs(reinterpret_cast<const sockaddr_in6 *>(&address.storage)->sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in *>(&address.storage)->sin_port);
}

// Returns an empty string on failure.
std::string numeric_host(const SocketAddress &address) {
    char host[NI_MAXHOST];
    if (getnameinfo(address.get(), address.length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) !=
        0)
        return {};
    // An IPv4 address mapped into IPv6 is shown as IPv4.
    constexpr std::string_view mapped = "::ffff:";
    std::string_view text = host;
    if (text.starts_with(mapped) && text.find('.') != std::string_view::npos)
        text.remove_prefix(mapped.size());
    return std::string(text);
}

Error cannot_listen(const TcpAddress &address, int code) {
    errno = code;
    std::string text = fmt::format("rank 0 cannot listen on {}", to_text(address));
    Error error = system_error(text);
    if (code != EADDRINUSE) return error;
    return Error(error.status, fmt::format("{}; another program, perhaps an earlier run, has this "
                                           "port: end it or choose another port",
                                           error.what()));
}

std::vector<Descriptor> listen_on_all_interfaces(const TcpAddress &address) {
    int code = 0;
    // One IPv6 socket also accepts IPv4; machines without IPv6 get an IPv4 socket.
    for (const char *any : {"::", "0.0.0.0"}) {
        for (const SocketAddress &entry : look_up({any, address.port}, AI_NUMERICHOST).found) {
            Descriptor listener = try_to_listen(entry);
            if (listener.open()) {
                std::vector<Descriptor> listeners;
                listeners.push_back(std::move(listener));
                return listeners;
            }
            code = errno;
        }
        if (code == EADDRINUSE || code == EACCES) break;
    }
    throw cannot_listen(address, code);
}

}  // namespace

std::string to_text(const TcpAddress &address) {
    if (address.host.find(':') == std::string::npos)
        return fmt::format("{}:{}", address.host, address.port);
    return fmt::format("[{}]:{}", address.host, address.port);
}

TcpAddress parse_tcp_address(std::string_view text, std::string_view what) {
    const auto wrong = [&](std::string_view reason) {
        return Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                     fmt::format("{} is not an address: {}; write \"host:port\", or "
                                 "\"[::1]:port\" for IPv6",
                                 what, reason));
    };
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) throw wrong("it has no port");
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    else if (host.find_first_of(":[]") != std::string_view::npos)
        throw wrong("an IPv6 address needs brackets");
    if (host.empty()) throw wrong("it has no host");
    // Host names and numeric addresses contain none of these characters.
    if (std::any_of(host.begin(), host.end(), [](unsigned char c) {
            return c <= ' ' || c == '/' || c == '*' || c == '[' || c == ']' || c == 127;
        }))
        throw wrong("its host has a character that no host has");
    TcpAddress address{std::string(host), 0};
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (code != std::errc() || end != port.data() + port.size() || address.port == 0)
        throw wrong("its port is not a number from 1 to 65535");
    return address;
}

std::vector<SocketAddress> resolve_numeric(const TcpAddress &address, std::string &why) {
    Resolution result = look_up(address, AI_NUMERICHOST);
    if (result.code != 0)
        why = fmt::format("{} is no numeric address: {}", address.host, gai_strerror(result.code));
    return std::move(result.found);
}

void resolve_in_background(const TcpAddress &address, Resolved done) {
    const auto report = [address, done = std::move(done)](Resolution result) {
        std::string why;
        if (result.code != 0)
            why = fmt::format("the name {} cannot be resolved: {}", address.host,
                              gai_strerror(result.code));
        done(std::move(result.found), std::move(why));
    };
    Resolution numeric = look_up(address, AI_NUMERICHOST);
    if (numeric.code != EAI_NONAME) return report(std::move(numeric));
    const SignalsBlocked blocked;
    try {
        std::thread([address, report] { report(look_up(address, 0)); }).detach();
    } catch (const std::system_error &) {
        report(Resolution{});
    }
}

MeetingPoint open_meeting_point() {
    MeetingPoint point;
    point.listener = std::move(listen_on_all_interfaces({"*", 0}).front());
    point.addresses = own_addresses(port_of(point.listener.get()));
    return point;
}

std::vector<Descriptor> listen_on(const TcpAddress &address) {
    std::vector<SocketAddress> entries = look_up(address, AI_NUMERICHOST).found;
    if (entries.empty() && address.host == "localhost")
        for (const char *host : {"127.0.0.1", "::1"})
            for (const SocketAddress &entry : look_up({host, address.port}, AI_NUMERICHOST).found)
                entries.push_back(entry);
    if (entries.empty()) return listen_on_all_interfaces(address);

    std::vector<Descriptor> listeners;
    int code = 0;
    for (SocketAddress &entry : entries) {
        Descriptor listener = try_to_listen(entry);
        if (listener.open()) listeners.push_back(std::move(listener));
        else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) code = errno;
        // All sockets must have the same port. With port 0 each would get another one, so one
        // socket is used.
        if (!listeners.empty() && address.port == 0) break;
    }
    if (code != 0) throw cannot_listen(address, code);
    if (listeners.empty()) return listen_on_all_interfaces(address);
    return listeners;
}

Descriptor listen_beside(int everywhere, const std::string &host) {
    Descriptor beside;
    share_port(everywhere, true);
    for (const SocketAddress &entry : look_up({host, port_of(everywhere)}, AI_NUMERICHOST).found) {
        beside = try_to_listen(entry, true);
        if (beside.open()) break;
    }
    // No other process may join them.
    share_port(everywhere, false);
    if (beside.open()) share_port(beside.get(), false);
    return beside;
}

Descriptor copy_of_listener(int descriptor) {
    int listening = 0, family = 0;
    socklen_t size = sizeof listening;
    const bool good =
        getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 &&
        getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &(size = sizeof family)) == 0 &&
        listening != 0 && (family == AF_INET || family == AF_INET6);
    if (!good)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("descriptor {} is not a TCP socket that listens; the launcher of "
                                "this process passed it",
                                descriptor));
    Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
    if (!copy.open() || fcntl(copy.get(), F_SETFL, fcntl(copy.get(), F_GETFL) | O_NONBLOCK) != 0)
        throw system_error("cannot copy the descriptor on which rank 0 listens");
    return copy;
}

std::uint16_t port_of(int socket) {
    SocketAddress address;
    address.length = sizeof address.storage;
    if (getsockname(socket, reinterpret_cast<sockaddr *>(&address.storage), &address.length) != 0)
        throw system_error("cannot read the port of a socket");
    return port_number(address);
}

std::vector<TcpAddress> own_addresses(std::uint16_t port) {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) throw system_error("cannot list the network interfaces");
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
    std::vector<TcpAddress> outside, loopback;
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
        char text[INET6_ADDRSTRLEN] = {};
        if (entry->ifa_addr->sa_family == AF_INET) {
            const auto *inet = reinterpret_cast<const sockaddr_in *>(entry->ifa_addr);
            inet_ntop(AF_INET, &inet->sin_addr, text, sizeof text);
        } else if (entry->ifa_addr->sa_family == AF_INET6) {
            const auto *inet6 = reinterpret_cast<const sockaddr_in6 *>(entry->ifa_addr);
            // A link-local address needs the name of an interface, which differs between machines.
            if (IN6_IS_ADDR_LINKLOCAL(&inet6->sin6_addr)) continue;
            inet_ntop(AF_INET6, &inet6->sin6_addr, text, sizeof text);
        } else {
            continue;
        }
        auto &into = (entry->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : outside;
        into.push_back({text, port});
    }
    outside.insert(outside.end(), loopback.begin(), loopback.end());
    return outside;
}

namespace {

// The address of one end of a connection; `query` is getsockname() or getpeername().
template <typename Query>
TcpAddress end_of(int socket, Query query) {
    SocketAddress address;
    address.length = sizeof address.storage;
    if (query(socket, reinterpret_cast<sockaddr *>(&address.storage), &address.length) != 0)
        return {};
    return {numeric_host(address), port_number(address)};
}

}  // namespace

TcpAddress local_address_of(int socket) {
    return end_of(socket, getsockname);
}

std::string peer_text(int socket) {
    const TcpAddress address = end_of(socket, getpeername);
    return address.host.empty() ? "an unknown address" : to_text(address);
}

std::string interface_of(const std::string &host) {
    ifaddrs *list = nullptr;
    if (host.empty() || getifaddrs(&list) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr) continue;
        const int family = entry->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        SocketAddress address;
        address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        std::memcpy(&address.storage, entry->ifa_addr, address.length);
        if (numeric_host(address) == host) return entry->ifa_name;
    }
    return {};
}

bool is_loopback(std::string_view host) {
    in_addr inet{};
    if (inet_pton(AF_INET, std::string(host).c_str(), &inet) == 1)
        return ntohl(inet.s_addr) >> 24 == 127;
    return host == "::1" || host == "localhost";
}

void tune_connection(int socket, double silence_seconds) {
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
#ifdef TCP_USER_TIMEOUT
    const auto milliseconds =
        static_cast<unsigned int>(std::clamp(silence_seconds, 0.1, 1e6) * 1e3);
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
    // The same for a connection that sends nothing.
    const int seconds = std::max(static_cast<int>(milliseconds / 3000), 1);
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
#endif
}

}  // namespace vescomm::internal
