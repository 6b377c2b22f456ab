// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/wake_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "base/system.h"

namespace vescomm::internal {

namespace {

// A leading zero byte makes the name abstract: it appears in no file system.
socklen_t address_of(const std::string &name, sockaddr_un &address) {
    address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(),
                std::min(name.size(), sizeof address.sun_path - 1));
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// The socket that sends for all boards of this process; it is never closed.
int sender() noexcept {
    static const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return socket;
}

}  // namespace

WakeSocket::WakeSocket() : name_("vescomm-wake-") {
    unsigned char random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        throw system_error("cannot get random bytes from the system");
    static constexpr char digits[] = "0123456789abcdef";
    for (const unsigned char byte : random) {
        name_ += digits[byte >> 4];
        name_ += digits[byte & 15];
    }
    socket_ = Descriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address;
    const socklen_t length = address_of(name_, address);
    if (!socket_.open() || sender() < 0 ||
        bind(socket_.get(), reinterpret_cast<const sockaddr *>(&address), length) != 0)
        throw system_error("cannot create a socket to be woken by");
}

void WakeSocket::wake(const std::string &name) noexcept {
    sockaddr_un address;
    const socklen_t length = address_of(name, address);
    // A socket with a full queue is readable, and a process that is gone needs no wake-up.
    [[maybe_unused]] const auto sent = sendto(sender(), "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                                              reinterpret_cast<const sockaddr *>(&address), length);
}

}  // namespace vescomm::internal
