// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank of the TCP transport played by a test: it knows the secret, and sends what the test gives
// it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "support/local_control.h"
#include "transport/checksummed.h"
#include "transport/tcp_handshake.h"
#include "transport/tcp_wire.h"

namespace vescomm::internal::testing_support {

inline constexpr double tcp_patience_seconds = 20;

// The address that TcpFabric::connect() sends through the control plane.
struct TcpAddressHead {
    TcpSession session{};
    std::uint32_t port = 0;
    std::uint8_t encrypted = 0, big_endian = 0, reserved[2] = {};
};
inline constexpr std::uint32_t tcp_address_magic = 0x41544356;

// `from`: local address; null: any.
inline Descriptor connect_to(const std::string &host, std::uint16_t port,
                             const char *from = nullptr) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    if (from != nullptr &&
        (inet_pton(AF_INET, from, &own.sin_addr) != 1 ||
         bind(socket.get(), reinterpret_cast<const sockaddr *>(&own), sizeof own) != 0))
        return {};
    if (connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0)
        return {};
    return socket;
}

inline bool write_all(int socket, const void *bytes, std::size_t size) {
    for (auto *at = static_cast<const char *>(bytes); size > 0;) {
        const ssize_t written = send(socket, at, size, MSG_NOSIGNAL);
        if (written <= 0) return false;
        at += written;
        size -= static_cast<std::size_t>(written);
    }
    return true;
}

// Returns an empty string if the other end closes or is silent for too long.
inline std::string read_exactly(int socket, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t at = 0; at < size;) {
        pollfd entry{socket, POLLIN, 0};
        if (poll(&entry, 1, static_cast<int>(tcp_patience_seconds * 1000)) != 1) return {};
        const ssize_t got = recv(socket, bytes.data() + at, size - at, 0);
        if (got <= 0) return {};
        at += static_cast<std::size_t>(got);
    }
    return bytes;
}

// Rank 1 of two, which connects to rank 0.
class TcpPeerByHand {
public:
    explicit TcpPeerByHand(std::shared_ptr<LocalControlHub> hub, bool encrypted = false)
        : control_(std::move(hub), 1), encrypted_(encrypted) {}

    LocalControl &control() { return control_; }

    void exchange_addresses() {
        TcpAddressHead own;
        own.encrypted = encrypted_ ? 1 : 0;
        const auto all = control_.all_gather(
            "tcp addresses", join_checksummed(tcp_address_magic, own, std::string("127.0.0.1")),
            Deadline::after(tcp_patience_seconds));
        TcpAddressHead head;
        host_ = split_checksummed(tcp_address_magic, all[0], "address", head);
        port_ = static_cast<std::uint16_t>(head.port);
        session_ = head.session;
    }

    const std::string &host() const { return host_; }
    std::uint16_t port() const { return port_; }

    TcpClaim claim() const { return {session_, 1, 0, encrypted_}; }
    FrameKey key() const { return control_.derive_key("vescomm tcp"); }

    // `before` runs before each message that is sent. Returns false if the connection is refused.
    template <typename Before>
    bool join(Before before, const char *from = nullptr) {
        before();
        socket_ = connect_to(host_, port_, from);
        if (!socket_.open()) return false;
        TcpConnector connector(key(), claim());
        before();
        write_all(socket_.get(), connector.hello().data(), connector.hello().size());
        if (!read(connector, tcp_answer_bytes, TcpConnector::State::answered)) return false;
        before();
        write_all(socket_.get(), connector.confirm().data(), connector.confirm().size());
        return read(connector, tcp_ready_bytes, TcpConnector::State::ready);
    }
    bool join() {
        return join([] {});
    }
    void meet() { control_.all_gather("transports", "", Deadline::after(tcp_patience_seconds)); }

    void send(const TcpMessage &message, const std::vector<std::byte> &bytes = {}) {
        write_all(socket_.get(), &message, sizeof message);
        write_all(socket_.get(), bytes.data(), bytes.size());
    }
    int socket() const { return socket_.get(); }
    void hang_up() { socket_ = Descriptor(); }

private:
    bool read(TcpConnector &connector, std::size_t size, TcpConnector::State wanted) {
        const std::string bytes = read_exactly(socket_.get(), size);
        std::string_view rest = bytes;
        return !bytes.empty() && connector.read(rest) == wanted;
    }

    LocalControl control_;
    const bool encrypted_;
    std::string host_;
    std::uint16_t port_ = 0;
    TcpSession session_{};
    Descriptor socket_;
};

}  // namespace vescomm::internal::testing_support
