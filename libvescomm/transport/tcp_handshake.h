// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/frame.h"

namespace vescomm::internal {

// Mutual authentication of the two ends of a data connection, before any byte of data:
//
//     connecting rank                                 accepting rank
//     hello (session, from, to, nonce a, MAC) ─────►
//                                             ◄─────  answer (nonce b, MAC)
//     confirm (MAC)                           ─────►
//                                             ◄─────  ready (MAC)
//
// Every MAC is HMAC-SHA256, under a key derived from the secret of the job, over all earlier bytes
// of the connection. The session is a random number that the accepting rank has sent through the
// control plane, so a hello recorded elsewhere is refused. Answer and confirm show that each end
// knows the key, on a nonce of the other end. A connection with an authentic hello gets a slot that
// unauthenticated peers cannot take.
//
// All classes are pure, except for random numbers: bytes in, bytes out.

using TcpSession = std::array<unsigned char, 16>;

// Throws if the system has no random bytes.
TcpSession random_session();

// Values on which both ends must agree.
struct TcpClaim {
    TcpSession session{};
    std::uint32_t from = 0;  // the connecting rank
    std::uint32_t to = 0;  // the accepting rank
    bool encrypted = false;
};

// Keys of the records of an encrypted connection.
struct TcpKeys {
    FrameKey to_acceptor{};
    FrameKey from_acceptor{};
};

inline constexpr std::size_t tcp_hello_bytes = 108;
inline constexpr std::size_t tcp_answer_bytes = 72;
inline constexpr std::size_t tcp_confirm_bytes = 32;
inline constexpr std::size_t tcp_ready_bytes = 32;

// The connecting end. Send hello() first, and confirm() once read() returns `answered`.
class TcpConnector {
public:
    enum class State {
        waiting,  // more bytes are needed
        answered,  // the peer knows the key: send confirm()
        ready,  // the connection is established, and keys() is valid
        refused,  // the peer is not the expected rank
    };

    TcpConnector(const FrameKey &key, const TcpClaim &claim);

    const std::string &hello() const { return hello_; }
    const std::string &confirm() const { return confirm_; }
    // Consumes the bytes of the handshake from the front of `bytes`.
    State read(std::string_view &bytes);
    TcpKeys keys() const;

private:
    const FrameKey key_;
    std::string hello_, answer_, confirm_, ready_;
};

// The accepting end.
class TcpAcceptor {
public:
    enum class State {
        waiting,  // more bytes are needed
        answered,  // the hello is authentic: send answer(); claim() is valid
        confirmed,  // send ready(); the connection is established
        refused,  // close the connection
    };

    // Accepts ranks that connect to `claim.to` in its session and agree on encryption.
    TcpAcceptor(const FrameKey &key, const TcpClaim &claim);

    State read(std::string_view &bytes);
    const TcpClaim &claim() const { return claim_; }
    const std::string &answer() const { return answer_; }
    const std::string &ready() const { return ready_; }
    TcpKeys keys() const;

private:
    bool check_hello();

    const FrameKey key_;
    TcpClaim claim_;
    std::string hello_, answer_, confirm_, ready_;
};

}  // namespace vescomm::internal
