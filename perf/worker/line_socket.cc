// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/worker/line_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace vescomm::perf {

LineSocket::LineSocket(LineSocket &&other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)),
      searched_(other.searched_) {}

LineSocket &LineSocket::operator=(LineSocket &&other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(buffer_, other.buffer_);
    std::swap(searched_, other.searched_);
    return *this;
}

LineSocket::~LineSocket() {
    if (descriptor_ >= 0) close(descriptor_);
}

std::optional<std::string> LineSocket::take() {
    const std::size_t end = buffer_.find('\n', searched_);
    searched_ = end == std::string::npos ? buffer_.size() : 0;
    if (end == std::string::npos) return std::nullopt;
    std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return line;
}

bool LineSocket::fill() {
    char bytes[65536];
    ssize_t got;
    do got = recv(descriptor_, bytes, sizeof bytes, 0);
    while (got < 0 && errno == EINTR);
    if (got > 0) buffer_.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
}

std::optional<std::string> LineSocket::read() {
    while (true) {
        if (std::optional<std::string> line = take()) return line;
        if (!fill()) return std::nullopt;
    }
}

std::optional<std::string> LineSocket::receive() {
    if (std::optional<std::string> line = take()) return line;
    if (!fill()) throw std::runtime_error("it hung up");
    return take();
}

void LineSocket::write(const std::string &line) {
    const std::string whole = line + "\n";
    for (std::size_t done = 0; done < whole.size();) {
        const ssize_t sent =
            send(descriptor_, whole.data() + done, whole.size() - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) throw std::system_error(errno, std::generic_category(), "sending a line");
        done += static_cast<std::size_t>(sent);
    }
}

LineSocket connect_to(const std::string &path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        throw std::runtime_error("the path of a socket is too long: " + path);
    path.copy(address.sun_path, path.size());
    LineSocket connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(connection.descriptor(), reinterpret_cast<const sockaddr *>(&address),
                sizeof address) != 0)
        throw std::system_error(errno, std::generic_category(), "connecting to " + path);
    return connection;
}

}  // namespace vescomm::perf
