// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vescomm::internal {

// Frames of the control plane: the messages between the hub and another process over a byte stream.
//
//     bytes   0       4         5      6          8          16       20        20 + length
//             magic   version   type   reserved   sequence   length   payload   MAC (32 bytes)
//
// Numbers are little-endian. The MAC is HMAC-SHA256 over all bytes before it. Both sides derive its
// key from the secret and one nonce of each side, with a different key for each direction. A
// recorded frame therefore fails on another connection, and a frame sent back to its sender fails
// too. Within a connection the sequence counts frames, so no frame can be repeated, dropped or
// reordered. The payload is authenticated but not encrypted: no secret may be sent in it.
//
// Everything in this file is a pure function of its arguments, except random_nonce().

constexpr std::size_t frame_header_bytes = 20;
constexpr std::size_t frame_mac_bytes = 32;
constexpr std::uint8_t frame_version = 3;

// Largest payload accepted from a peer that is not authenticated yet.
constexpr std::size_t max_unauthenticated_payload = 512;
// Largest note from one member of a group to another.
constexpr std::size_t max_note_bytes = 2048;
// Larger messages are split into several frames. A heartbeat or a failure then never waits long
// behind a message, and a receiver never holds more unauthenticated bytes than this.
constexpr std::size_t max_payload_bytes = std::size_t{256} << 10;

// How a process left a session.
enum class Ended : std::uint8_t {
    died = 0,  // its connection ended
    closed = 1,  // in good order
    silent = 2,  // nothing came from it for too long
};

enum class FrameType : std::uint8_t {
    // Handshake; see handshake.h.
    hello = 1,  // joining process: its nonce. Sent under the open key, which authenticates nothing.
    challenge,  // listening process: its nonce. Sent under the open key.
    proof,  // listening process: empty; the MAC shows that it knows the secret
    join,  // joining process: its claim; the MAC shows that it knows the secret
    welcome,  // listening process: the claim is accepted
    // Session.
    start,  // hub: every process has joined; the address on which each of them listens
    heartbeat,  // either: the sender is alive
    ended,  // hub: a process has ended its session, or died
    close,  // either: the sender ends its session in good order
    // One group of the session. The payload begins with the group's id.
    open,  // process: it takes part; the members of the group
    opened,  // hub: every member takes part; the number of the group
    contribution,  // process: the head of its contribution to an all-gather; data frames follow
    result,  // hub: the head of all contributions; data frames follow
    data,  // either: the next bytes of a contribution or result
    expired,  // process: its deadline has passed
    failure,  // either: the group is broken, and why
    goodbye,  // process: this member leaves in good order; hub: that member has left
    farewell,  // hub: every member has left
    // Process: a note for a member; hub: the note of a member; listening process, before the
    // welcome: for which members it waits.
    note,
};
constexpr FrameType last_frame_type = FrameType::note;

using FrameKey = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

// The direction of a connection: from the process that connected, or towards it.
enum class Direction { from_joiner, to_joiner };

// Throws Error when the system has no random bytes.
Nonce random_nonce();

// HMAC-SHA256. Throws Error when libcrypto cannot compute it.
FrameKey keyed_hash(std::string_view key, std::string_view bytes);

// The public key of the frames that are sent before both nonces are known. It authenticates
// nothing.
FrameKey open_key();
FrameKey session_key(std::string_view secret, Direction direction, const Nonce &joiner,
                     const Nonce &listener);

// A key for one purpose outside the control plane.
FrameKey derived_key(std::string_view secret, std::string_view purpose);

// Encodes the frames of one direction of one connection.
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

// Returns words that complete "the peer sent ...".
const char *describe(FrameFault fault);

// Decodes the frames of one direction of one connection from pieces of any size.
//
// Memory: one frame. The length is checked against the limit before memory is reserved. After a
// fault every further call returns State::broken and consumes nothing.
class FrameDecoder {
public:
    enum class State { incomplete, complete, broken };

    FrameDecoder(const FrameKey &key, std::size_t payload_limit, std::uint64_t sequence = 0)
        : key_(key), payload_limit_(payload_limit), sequence_(sequence) {}

    // Consumes the bytes of the current frame from the front of `bytes`.
    // complete: type() and payload() hold a frame until the next call. `bytes` may hold more.
    // incomplete: `bytes` is empty.
    State read(std::string_view &bytes);

    FrameType type() const;
    std::string_view payload() const;
    FrameFault fault() const { return fault_; }
    // The peer's protocol version; valid when fault() is FrameFault::version.
    std::uint8_t version() const;

    // Raises the limit once the peer is authenticated.
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

}  // namespace vescomm::internal
