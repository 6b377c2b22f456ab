// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vescomm {

// Frames of the control plane: what travels between rank 0 and another rank over a byte stream.
//
//     bytes   0       4         5      6          8          16       20        20 + length
//             magic   version   type   reserved   sequence   length   payload   seal (32 bytes)
//
// Numbers are little-endian. The seal is HMAC-SHA256 over everything before it, under a key that
// both sides derive from the secret and from one random nonce of each side, a different key in each
// direction. A recorded frame therefore fails in another session, and one sent back to its sender
// fails too; within a session the sequence counts frames, so none can be repeated, dropped or
// moved. The payload is authenticated, not encrypted: nothing secret travels here.
//
// Everything in this file is a pure function of its arguments, except random_nonce().

constexpr std::size_t frame_header_bytes = 20;
constexpr std::size_t frame_seal_bytes = 32;
constexpr std::uint8_t frame_version = 1;

// Before a peer has proved that it knows the secret it may send no more than this at once.
constexpr std::size_t stranger_payload_bytes = 64;
// Larger messages travel as several frames: a heartbeat or a failure never waits long behind them,
// and a receiver holds at most this much that it has not authenticated.
constexpr std::size_t largest_payload_bytes = std::size_t{256} << 10;

enum class FrameType : std::uint8_t {
    hello = 1,  // joining rank: its nonce. Sealed with the open key, which proves nothing.
    challenge,  // rank 0: its nonce. Sealed with the open key.
    proof,  // rank 0: nothing; the seal shows that it knows the secret
    join,  // joining rank: who it is; the seal shows that it knows the secret
    welcome,  // rank 0: this rank is in, others are still awaited
    start,  // rank 0: every rank is in
    heartbeat,  // either: still alive
    contribution,  // a rank: the head of what it gives to an all-gather; data frames follow
    result,  // rank 0: the head of what everyone gave; data frames follow
    data,  // either: the next piece of a contribution or result
    expired,  // a rank: its deadline for an all-gather has passed
    failure,  // either: the communicator is broken, and why
    goodbye,  // either: this rank leaves in good order
    farewell,  // rank 0: every rank has said goodbye
};
constexpr FrameType last_frame_type = FrameType::farewell;

using FrameKey = std::array<unsigned char, 32>;
using Nonce = std::array<unsigned char, 32>;

enum class Direction { to_rank_0, from_rank_0 };

// Throws Error when the system has no random bytes.
Nonce random_nonce();

// A key that everyone knows, for the frames sent before both nonces are known.
FrameKey open_key();
FrameKey session_key(std::string_view secret, Direction direction, const Nonce &joiner,
                     const Nonce &rank_0);

// A key for one purpose outside of the control plane.
FrameKey derived_key(std::string_view secret, std::string_view purpose);

// Makes the frames of one direction of one connection.
class FrameEncoder {
public:
    explicit FrameEncoder(const FrameKey &key) : key_(key) {}

    // Appends a frame; the payload is at most largest_payload_bytes.
    void append(std::string &to, FrameType type, std::string_view payload);

private:
    FrameKey key_;
    std::uint64_t sequence_ = 0;
};

enum class FrameFault { none, magic, version, type, length, sequence, seal };

// Completes "the peer sent …".
const char *describe(FrameFault fault);

// Takes the bytes of one direction of one connection, in pieces of any size, and gives frames.
//
// Memory: one frame. Its length is checked against the limit before anything is reserved for it.
// After a fault every further call says broken and takes nothing.
class FrameDecoder {
public:
    enum class State { incomplete, complete, broken };

    FrameDecoder(const FrameKey &key, std::size_t payload_limit)
        : key_(key), payload_limit_(payload_limit) {}

    // Removes from the front of `bytes` what belongs to the current frame.
    // complete: type() and payload() hold a frame, until the next call. `bytes` may hold more.
    // incomplete: `bytes` is empty.
    State read(std::string_view &bytes);

    FrameType type() const;
    std::string_view payload() const;
    FrameFault fault() const { return fault_; }
    // Of the other side; known once fault() is FrameFault::version.
    std::uint8_t version() const;

    // For the moment at which a stranger has proved itself.
    void set_payload_limit(std::size_t bytes) { payload_limit_ = bytes; }

private:
    FrameFault check_header_so_far() const;
    FrameFault check_seal() const;
    std::size_t payload_size() const;

    FrameKey key_;
    std::size_t payload_limit_;
    std::uint64_t sequence_ = 0;
    std::string frame_;
    bool complete_ = false;
    FrameFault fault_ = FrameFault::none;
};

}  // namespace vescomm
