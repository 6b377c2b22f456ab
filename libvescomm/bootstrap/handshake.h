// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "bootstrap/frame.h"
#include "bootstrap/group_id.h"

namespace vescomm {

// How two processes of a job come to trust each other: four frames, then welcome or failure.
//
//     joining process                    listening process
//     hello (nonce a)        ------->
//                            <-------    challenge (nonce b), proof
//     join (claim)           ------->
//                            <-------    welcome, or failure (status, sentence)
//
// The MACs of proof and join need keys made of the secret, a and b: each side has then seen the
// other use the secret on a nonce of its own. Both classes are pure: bytes in, bytes out.
//
// A listener that is flooded may have to close a connection while the reply travels. It keeps no
// state for that: nonce b is a keyed hash of a (a cookie). The joining process connects again and
// sends hello (a, b) and join at once; the listener recognises its own cookie, and authenticates
// the join without another round trip.

// What a joining process says of itself.
struct Claim {
    enum class Purpose : std::uint8_t {
        session = 1,  // takes part in the session of the listening hub
        regroup = 2,  // survives with others, and makes a new session with them
    };
    Purpose purpose = Purpose::session;
    GroupId group = {};  // regroup: the group whose survivors meet
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;
    std::uint16_t port = 0;  // on which it listens itself, at the local end of this connection
    std::string build = {};  // version and build of its library

    bool operator==(const Claim &) const = default;
};

constexpr std::size_t max_build_bytes = 128;
std::string encode(const Claim &claim);
// False when the payload is malformed.
bool read_claim(std::string_view payload, Claim &claim);

// Both directions of a connection whose two ends trust each other.
struct SessionKeys {
    FrameEncoder encoder;
    FrameDecoder decoder;
};

// Nonces of a listener that it need not remember.
class Cookies {
public:
    Cookies();

    Nonce issue(const Nonce &joiner, Clock::time_point now) const;
    // Whether it was issued to this nonce a short time ago and has not been used to join.
    bool valid(const Nonce &joiner, const Nonce &cookie, Clock::time_point now) const;
    // A join was accepted: the same bytes recorded and sent again must not join a second time.
    void use(const Nonce &joiner) { used_.insert(joiner); }
    bool used(const Nonce &joiner) const { return used_.contains(joiner); }

private:
    Nonce hash(const Nonce &joiner, std::int64_t epoch) const;

    Nonce key_;
    std::set<Nonce> used_;
};

// The listener's end. Holds less than a kilobyte until the other end has proved itself.
class ServerHandshake {
public:
    enum class State {
        waiting,  // for more bytes
        joined,  // claim() is authentic; welcome or failure is the caller's to send
        stray,  // close the connection, after sending the reply if there is one
    };

    // Secret and cookies are borrowed.
    ServerHandshake(std::string_view secret, Cookies &cookies);

    // Removes the bytes that it understands from the front of `bytes`; appends what is to be sent.
    State read(std::string_view &bytes, std::string &reply, Clock::time_point now);

    const Claim &claim() const { return claim_; }
    // The other end has sent a whole hello: it speaks the protocol.
    bool greeted() const { return greeted_; }
    SessionKeys take_keys() { return std::move(keys_); }

private:
    State answer_hello(std::string &reply, Clock::time_point now);
    State read_join();

    std::string_view secret_;
    Cookies &cookies_;
    Nonce joiner_{};
    bool greeted_ = false;
    SessionKeys keys_;
    Claim claim_;
};

// The joining process's end, over one connection or several in succession.
class ClientHandshake {
public:
    enum class State {
        waiting,
        proved,  // the other end knows the secret: send join()
        welcomed,  // take_keys() is ready
        refused,  // refusal() is the listener's own word
        wrong_secret,  // the other end speaks the protocol, but has another secret
        other_version,
        not_vescomm,  // the other end speaks something else; fault() says what is wrong
    };

    // The secret is borrowed.
    ClientHandshake(std::string_view secret, Claim claim);

    // The first bytes of a connection. Once the listener has proved itself on an earlier one, they
    // hold the join as well.
    std::string hello();
    std::string join();
    State read(std::string_view &bytes);

    // Forgets an earlier connection: its cookie is out of date.
    void restart();
    bool resumes() const { return proved_; }

    void set_port(std::uint16_t port) { claim_.port = port; }
    // The payload of the welcome, once welcomed.
    std::string_view welcome() const { return keys_.decoder.payload(); }
    const Error &refusal() const { return refusal_; }
    FrameFault fault() const { return keys_.decoder.fault(); }
    unsigned version() const { return keys_.decoder.version(); }
    SessionKeys take_keys() { return std::move(keys_); }

private:
    State advance();
    void use_keys(std::uint64_t received);

    std::string_view secret_;
    Claim claim_;
    Nonce nonce_;
    Nonce listener_{};
    bool proved_ = false;
    FrameType awaited_ = FrameType::challenge;
    SessionKeys keys_;
    Error refusal_{VESCOMM_OK, ""};
};

// The payload of a failure frame, behind the id of the group.
std::string failure_payload(const GroupId &group, vescomm_status_t status, std::string_view why);
// Any rest of a payload gives an error.
Error read_failure(WireReader &reader);

}  // namespace vescomm
