// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "bootstrap/frame.h"

namespace vescomm {

// How a rank and rank 0 come to trust each other: four frames, then welcome or failure.
//
//     joining rank                       rank 0
//     hello (nonce a)        ───────►
//                            ◄───────    challenge (nonce b), proof
//     join (rank, ranks)     ───────►
//                            ◄───────    welcome, or failure (status, sentence)
//
// The seals of proof and join need keys made of the secret, a and b: each side has then seen the
// other use the secret on a nonce of its own. Both classes are pure: bytes in, bytes out.

// Who a joining rank says it is.
struct Claim {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;
};

// Both directions of a connection whose two ends trust each other.
struct Session {
    FrameEncoder encoder;
    FrameDecoder decoder;
};

// Rank 0's end. Holds a few hundred bytes until the other end has proved itself.
class Doorkeeper {
public:
    enum class State {
        waiting,  // for more bytes
        joined,  // claim() is authentic; welcome or failure is the caller's to send
        stray,  // close the connection, after sending the reply if there is one
    };

    // The secret is borrowed.
    explicit Doorkeeper(std::string_view secret);

    // Removes what it understands from the front of `bytes`; appends what is to be sent.
    State read(std::string_view &bytes, std::string &reply);

    Claim claim() const { return claim_; }
    Session take_session() { return std::move(session_); }

private:
    State answer_hello(std::string &reply);
    State read_join();

    std::string_view secret_;
    Nonce nonce_;
    bool greeted_ = false;
    Session session_;
    Claim claim_;
};

// The joining rank's end.
class Joiner {
public:
    enum class State {
        waiting,
        proved,  // the other end is rank 0: send join() on this connection, and on no other
        welcomed,  // take_session() is ready
        refused,  // refusal() is rank 0's own word
        wrong_secret,  // the other end is a rank 0, but with another secret
        other_version,
        stranger,  // the other end is no rank 0; fault() says why
    };

    Joiner(std::string_view secret, Claim claim);

    std::string hello();
    std::string join();
    State read(std::string_view &bytes);

    Error refusal() const { return refusal_; }
    FrameFault fault() const { return session_.decoder.fault(); }
    unsigned version() const { return session_.decoder.version(); }
    Session take_session() { return std::move(session_); }

private:
    State advance();

    std::string_view secret_;
    Claim claim_;
    Nonce nonce_;
    FrameType awaited_ = FrameType::challenge;
    Session session_;
    Error refusal_{VESCOMM_OK, ""};
};

// The payload of a failure frame.
std::string failure_payload(vescomm_status_t status, std::string_view why);
// Whatever it is, the result is an error.
Error read_failure(std::string_view payload);

}  // namespace vescomm
