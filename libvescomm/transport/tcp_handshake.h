// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/frame.h"

namespace vescomm {

// How the two ends of a data connection come to trust each other, before any byte of data:
//
//     connecting rank                                 accepting rank
//     hello (session, from, to, nonce a, MAC) ─────►
//                                             ◄─────  answer (nonce b, MAC)
//     confirm (MAC)                           ─────►
//                                             ◄─────  ready (MAC)
//
// Every MAC is HMAC-SHA256, under a key derived from the secret of the job, over everything that
// was said before on this connection. The session is a random number that the accepting rank has
// told through the control plane, so a hello that was recorded elsewhere is refused. Answer and
// confirm prove that each end knows the key, on a nonce of the other's. A hello that is authentic
// earns its connection a place that unauthenticated peers cannot take from it.
//
// All classes are pure: bytes in, bytes out, but for random numbers.

using TcpSession = std::array<unsigned char, 16>;

// Throws where the system has no random bytes.
TcpSession random_session();

// What both ends must agree on.
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

// The connecting end. hello() is sent first, confirm() once read() says `answered`.
class TcpConnector {
public:
    enum class State {
        waiting,  // for more bytes
        answered,  // the other end knows the key: send confirm()
        ready,  // the connection is made, and keys() are known
        refused,  // the other end is not the rank that was to be reached
    };

    TcpConnector(const FrameKey &key, const TcpClaim &claim);

    const std::string &hello() const { return hello_; }
    const std::string &confirm() const { return confirm_; }
    // Removes from the front of `bytes` what belongs to the handshake.
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
        waiting,  // for more bytes
        answered,  // the hello is authentic: send answer(). claim() is known
        confirmed,  // send ready(); the connection is made
        refused,  // close the connection
    };

    // Accepts ranks that connect to `claim.to` in its session, if they want the same.
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

}  // namespace vescomm
