// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_meeting_io.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace vescomm::internal {

std::string rank_name(std::size_t rank) {
    return "rank " + std::to_string(rank);
}

std::string reason(int code) {
    return std::generic_category().message(code);
}

void set_option(int socket, int option, int value) {
    setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
}

bool send_all(int socket, const std::string &bytes) {
    return send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
}

Read read_some(int socket, std::size_t max, std::string &bytes, std::string &problem) {
    char buffer[tcp_hello_bytes];
    const ssize_t got = recv(socket, buffer, std::min(max, sizeof buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Read::nothing;
    if (got <= 0) problem = got == 0 ? "the connection was closed" : reason(errno);
    if (got <= 0) return Read::ended;
    bytes.assign(buffer, static_cast<std::size_t>(got));
    return Read::some;
}

}  // namespace vescomm::internal
