// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vescomm {

// Frames of the control plane: the messages between the hub and another process over a byte stream.
//
//     bytes   0       4         5      6          8          16       20        20 + length
//             magic   version   type   reserved   sequence   length   payload   MAC (32 bytes)
//
// Numbers are little-endian. The MAC is HMAC-SHA256 over everything before it, under a key that
// both sides derive from the secret and from one nonce of each side, a different key in each
// direction. A recorded frame therefore fails in another connection, and one sent back to its
// sender fails too; within a connection the sequence counts frames, so none can be repeated,
// dropped or moved. The payload is authenticated, not encrypted: nothing secret travels here.
//
// Everything in this file is a pure function of its arguments, except random_nonce().

constexpr std::size_t frame_header_bytes = 20;
constexpr std::size_t frame_mac_bytes = 32;
constexpr std::uint8_t frame_version = 2;

// Before a peer has proved that it knows the secret it may send no more than this at once.
constexpr std::size_t max_unauthenticated_payload = 512;
// Larger messages travel as several frames: a heartbeat or a failure never waits long behind them,
// and a receiver holds at most this much that it has not authenticated.
constexpr std::size_t max_payload_bytes = std::size_t{256} << 10;

enum class FrameType : std::uint8_t {
    // The handshake; see handshake.h.
    hello = 1,  // joining process: its nonce. Sent under the open key, which proves nothing.
    challenge,  // listening process: its nonce. Sent under the open key.
    proof,  // listening process: empty; the MAC shows that it knows the secret
    join,  // joining process: its claim; the MAC shows that it knows the secret
    welcome,  // listening process: the claim is accepted
    // The session.
    start,  // hub: every process is in; where each of them listens
    heartbeat,  // either: still alive
    ended,  // hub: a process has ended its session, or died
    close,  // either: this process ends its session in good order
    // One group of the session. The payload begins with the group's id.
    open,  // process: it takes part, and with whom
    opened,  // hub: every member takes part; the number of the group
    contribution,  // process: the head of its part of an all-gather; data frames follow
    result,  // hub: the head of all parts; data frames follow
    data,  // either: the next bytes of a contribution or result
    expired,  // process: its deadline has passed
    failure,  // either: the group is broken, and why
    goodbye,  // process: this member leaves in good order; hub: that member has
    farewell,  // hub: every member has left
};
constexpr FrameType last_frame_type = FrameType::farewell;

using FrameKey = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

// The direction of a connection: from the process that connected, or to it.
enum class Direction { from_joiner, to_joiner };

// Throws Error when the system has no random bytes.
Nonce random_nonce();

// HMAC-SHA256. Throws Error when libcrypto cannot compute it.
FrameKey keyed_hash(std::string_view key, std::string_view bytes);

// A key that everyone knows, for the frames sent before both nonces are known.
FrameKey open_key();
FrameKey session_key(std::string_view secret, Direction direction, const Nonce &joiner,
                     const Nonce &listener);

// A key for one purpose outside of the control plane.
FrameKey derived_key(std::string_view secret, std::string_view purpose);

// Makes the frames of one direction of one connection.
class FrameEncoder {
public:
    explicit FrameEncoder(const FrameKey &key, std::uint64_t sequence = 0)
        : key_(key), sequence_(sequence) {}

    // Appends a frame; the payload is at most max_payload_bytes.
    void append(std::string &to, FrameType type, std::string_view payload);

private:
    FrameKey key_;
    std::uint64_t sequence_ = 0;
};

enum class FrameFault { none, magic, version, type, length, sequence, mac };

// Completes "the peer sent ...".
const char *describe(FrameFault fault);

// Takes the bytes of one direction of one connection, in pieces of any size, and gives frames.
//
// Memory: one frame. Its length is checked against the limit before anything is reserved for it.
// After a fault every further call says broken and takes nothing.
class FrameDecoder {
public:
    enum class State { incomplete, complete, broken };

    FrameDecoder(const FrameKey &key, std::size_t payload_limit, std::uint64_t sequence = 0)
        : key_(key), payload_limit_(payload_limit), sequence_(sequence) {}

    // Removes from the front of `bytes` what belongs to the current frame.
    // complete: type() and payload() hold a frame, until the next call. `bytes` may hold more.
    // incomplete: `bytes` is empty.
    State read(std::string_view &bytes);

    FrameType type() const;
    std::string_view payload() const;
    FrameFault fault() const { return fault_; }
    // The other side's version; known once fault() is FrameFault::version.
    std::uint8_t version() const;

    // Called once the peer has proved that it knows the secret.
    void set_payload_limit(std::size_t bytes) { payload_limit_ = bytes; }

private:
    FrameFault check_header_so_far() const;
    FrameFault check_mac() const;
    std::size_t payload_size() const;

    FrameKey key_;
    std::size_t payload_limit_;
    std::uint64_t sequence_ = 0;
    std::string frame_;
    bool complete_ = false;
    FrameFault fault_ = FrameFault::none;
};

}  // namespace vescomm
