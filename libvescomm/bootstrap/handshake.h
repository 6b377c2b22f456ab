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
#include "bootstrap/survivor_listener.h"

namespace vescomm::internal {

// Mutual authentication of two processes of a job: four frames, then welcome or failure.
//
//     joining process                    listening process
//     hello (nonce a)        ------->
//                            <-------    challenge (nonce b), proof
//     join (claim)           ------->
//                            <-------    welcome, or failure (status, sentence)
//
// The keys of the MACs of proof and join are derived from the secret, a and b: each side thereby
// sees the other use the secret on a fresh nonce. Both classes are pure: bytes in, bytes out.
//
// Under a flood of connections the listener may close a connection while its reply is under way. It
// keeps no state for that case: nonce b is a keyed hash of a (a cookie). The joining process
// connects again and sends hello (a, b) and join together. The listener recognises its own cookie
// and authenticates the join without another round trip.

// The identity that a joining process claims.
struct Claim {
    enum class Purpose : std::uint8_t {
        session = 1,  // takes part in the session of the listening hub
        regroup = 2,  // survived a failure, and forms a new session with the other survivors
    };
    Purpose purpose = Purpose::session;
    GroupId group = {};  // regroup: the group whose survivors meet
    std::uint32_t rank = 0;
    std::uint32_t ranks = 0;
    // Its listener for survivors: the port, at the local end of this connection, and the number.
    std::uint16_t port = 0;
    std::uint64_t listener = 0;
    std::string build = {};  // version and build of its library

    bool operator==(const Claim &) const = default;
};

constexpr std::size_t max_build_bytes = 128;
std::string encode(const Claim &claim);
// False when the payload is malformed.
bool read_claim(std::string_view payload, Claim &claim);

// Both directions of an authenticated connection.
struct SessionKeys {
    FrameEncoder encoder;
    FrameDecoder decoder;
};

// Nonces that a listener can verify without storing them.
class Cookies {
public:
    Cookies();

    Nonce issue(const Nonce &joiner, Clock::time_point now) const;
    // True for a cookie that was issued to this nonce recently and has not been used to join.
    bool valid(const Nonce &joiner, const Nonce &cookie, Clock::time_point now) const;
    // Marks a cookie as used: a recorded join that is replayed must not join a second time.
    void use(const Nonce &joiner) { used_.insert(joiner); }
    bool used(const Nonce &joiner) const { return used_.contains(joiner); }

private:
    Nonce hash(const Nonce &joiner, std::int64_t epoch) const;

    Nonce key_;
    std::set<Nonce> used_;
};

// The listener's end. Holds less than a kilobyte until the peer is authenticated.
class ServerHandshake {
public:
    enum class State {
        waiting,  // more bytes are needed
        joined,  // claim() is authenticated; the caller sends welcome or failure
        rejected,  // close the connection, after sending the reply if there is one
    };

    // Secret and cookies are borrowed.
    ServerHandshake(std::string_view secret, Cookies &cookies);

    // Consumes complete frames from the front of `bytes` and appends the reply to `reply`.
    State read(std::string_view &bytes, std::string &reply, Clock::time_point now);

    const Claim &claim() const { return claim_; }
    // The peer has sent a complete hello: it speaks the protocol.
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
        authenticated,  // the listener is authenticated: send join()
        welcomed,  // take_keys() is ready
        refused,  // refusal() holds the listener's reason
        wrong_secret,  // the peer speaks the protocol but has another secret
        other_version,
        not_vescomm,  // the peer speaks another protocol; fault() gives the difference
    };

    // The secret is borrowed.
    ClientHandshake(std::string_view secret, Claim claim);

    // The first bytes of a connection. They include the join if the listener was authenticated on
    // an earlier connection.
    std::string hello();
    std::string join();
    State read(std::string_view &bytes);

    // Forgets the earlier connection, whose cookie is out of date.
    void restart();
    bool resumes() const { return authenticated_; }

    void set_listener(const SurvivorListener &listener) {
        claim_.port = listener.address.port;
        claim_.listener = listener.number;
    }
    // The payload of the welcome; valid in state welcomed.
    std::string_view welcome() const { return keys_.decoder.payload(); }
    // The payload of the latest note that came instead of the welcome; empty: none has come.
    const std::string &note() const { return note_; }
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
    bool authenticated_ = false;
    FrameType awaited_ = FrameType::challenge;
    SessionKeys keys_;
    std::string note_;
    Error refusal_{VESCOMM_OK, ""};
};

// The payload of a failure frame; it follows the id of the group.
std::string failure_payload(const GroupId &group, vescomm_status_t status, std::string_view why);
// Decodes the rest of a payload; malformed input also yields an error.
Error read_failure(WireReader &reader);

}  // namespace vescomm::internal
