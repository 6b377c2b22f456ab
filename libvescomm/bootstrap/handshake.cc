// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handshake.h"

#include <algorithm>
#include <utility>

namespace vescomm::internal {

namespace {

// Longer sentences are shortened: people read them, and they must fit in any frame.
constexpr std::size_t max_sentence_bytes = 8 << 10;

// A cookie is valid for one to two epochs, far longer than any handshake takes.
constexpr std::int64_t epoch_seconds = 60;

SessionKeys open_keys() {
    return {FrameEncoder(open_key()), FrameDecoder(open_key(), max_unauthenticated_payload)};
}

std::string_view view(const Nonce &nonce) {
    return {reinterpret_cast<const char *>(nonce.data()), nonce.size()};
}

// Consumes a nonce from the front. Returns false when there is none.
bool take_nonce(std::string_view &payload, Nonce &nonce) {
    if (payload.size() < nonce.size()) return false;
    std::copy_n(payload.begin(), nonce.size(), nonce.begin());
    payload.remove_prefix(nonce.size());
    return true;
}

std::int64_t epoch_of(Clock::time_point now) {
    return std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count() /
           epoch_seconds;
}

}  // namespace

std::string encode(const Claim &claim) {
    std::string payload;
    put_number(payload, static_cast<std::uint8_t>(claim.purpose));
    put_group(payload, claim.group);
    put_number(payload, claim.rank);
    put_number(payload, claim.ranks);
    put_number(payload, claim.port);
    put_number(payload, claim.listener);
    payload.append(claim.build, 0, max_build_bytes);
    return payload;
}

bool read_claim(std::string_view payload, Claim &claim) {
    WireReader reader(payload);
    const auto purpose = reader.number<std::uint8_t>();
    claim.purpose = static_cast<Claim::Purpose>(purpose);
    claim.group = get_group(reader);
    claim.rank = reader.number<std::uint32_t>();
    claim.ranks = reader.number<std::uint32_t>();
    claim.port = reader.number<std::uint16_t>();
    claim.listener = reader.number<std::uint64_t>();
    if (!reader.good() || reader.rest().size() > max_build_bytes) return false;
    claim.build = reader.rest();
    return purpose == 1 || purpose == 2;
}

// ---- cookies ----

Cookies::Cookies() : key_(random_nonce()) {}

Nonce Cookies::hash(const Nonce &joiner, std::int64_t epoch) const {
    std::string text;
    put_number(text, static_cast<std::uint64_t>(epoch));
    text += view(joiner);
    return keyed_hash(view(key_), text);
}

Nonce Cookies::issue(const Nonce &joiner, Clock::time_point now) const {
    return hash(joiner, epoch_of(now));
}

bool Cookies::valid(const Nonce &joiner, const Nonce &cookie, Clock::time_point now) const {
    const std::int64_t epoch = epoch_of(now);
    return !used(joiner) && (cookie == hash(joiner, epoch) || cookie == hash(joiner, epoch - 1));
}

// ---- the listener ----

ServerHandshake::ServerHandshake(std::string_view secret, Cookies &cookies)
    : secret_(secret), cookies_(cookies), keys_(open_keys()) {}

ServerHandshake::State ServerHandshake::read(std::string_view &bytes, std::string &reply,
                                             Clock::time_point now) {
    for (;;) {
        switch (keys_.decoder.read(bytes)) {
            case FrameDecoder::State::incomplete:
                return State::waiting;
            case FrameDecoder::State::broken:
                // The reply lets a process of another version report the difference.
                if (keys_.decoder.fault() == FrameFault::version && !greeted_)
                    keys_.encoder.append(reply, FrameType::challenge, view(Nonce{}));
                return State::rejected;
            case FrameDecoder::State::complete:
                break;
        }
        if (greeted_) return read_join();
        if (answer_hello(reply, now) == State::rejected) return State::rejected;
    }
}

ServerHandshake::State ServerHandshake::answer_hello(std::string &reply, Clock::time_point now) {
    std::string_view payload = keys_.decoder.payload();
    if (keys_.decoder.type() != FrameType::hello || !take_nonce(payload, joiner_))
        return State::rejected;
    Nonce cookie;
    const bool resumes = take_nonce(payload, cookie);
    if (!payload.empty()) return State::rejected;
    if (resumes && !cookies_.valid(joiner_, cookie, now)) return State::rejected;
    if (!resumes) {
        cookie = cookies_.issue(joiner_, now);
        keys_.encoder.append(reply, FrameType::challenge, view(cookie));
    }
    // The proof is frame 0 of this direction. A resumed connection starts at frame 1, because the
    // proof was sent on the earlier connection.
    keys_.encoder =
        FrameEncoder(session_key(secret_, Direction::to_joiner, joiner_, cookie), resumes ? 1 : 0);
    keys_.decoder = FrameDecoder(session_key(secret_, Direction::from_joiner, joiner_, cookie),
                                 max_unauthenticated_payload);
    if (!resumes) keys_.encoder.append(reply, FrameType::proof, {});
    greeted_ = true;
    return State::waiting;
}

ServerHandshake::State ServerHandshake::read_join() {
    if (keys_.decoder.type() != FrameType::join || cookies_.used(joiner_) ||
        !read_claim(keys_.decoder.payload(), claim_))
        return State::rejected;
    cookies_.use(joiner_);
    keys_.decoder.set_payload_limit(max_payload_bytes);
    return State::joined;
}

// ---- the joining process ----

ClientHandshake::ClientHandshake(std::string_view secret, Claim claim)
    : secret_(secret), claim_(std::move(claim)), nonce_(random_nonce()), keys_(open_keys()) {}

void ClientHandshake::restart() {
    note_.clear();
    authenticated_ = false;
    nonce_ = random_nonce();
    keys_ = open_keys();
    awaited_ = FrameType::challenge;
}

// `received`: number of frames received under these keys on an earlier connection.
void ClientHandshake::use_keys(std::uint64_t received) {
    keys_.encoder = FrameEncoder(session_key(secret_, Direction::from_joiner, nonce_, listener_));
    keys_.decoder = FrameDecoder(session_key(secret_, Direction::to_joiner, nonce_, listener_),
                                 max_unauthenticated_payload, received);
}

std::string ClientHandshake::hello() {
    std::string frames;
    if (!authenticated_) {
        // Every connection uses a fresh nonce, so no state of a broken connection remains.
        restart();
        keys_.encoder.append(frames, FrameType::hello, view(nonce_));
        return frames;
    }
    std::string payload(view(nonce_));
    payload += view(listener_);
    FrameEncoder(open_key()).append(frames, FrameType::hello, payload);
    use_keys(1);
    keys_.decoder.set_payload_limit(max_payload_bytes);
    awaited_ = FrameType::welcome;
    return frames + join();
}

std::string ClientHandshake::join() {
    std::string frame;
    keys_.encoder.append(frame, FrameType::join, encode(claim_));
    return frame;
}

ClientHandshake::State ClientHandshake::read(std::string_view &bytes) {
    for (;;) {
        switch (keys_.decoder.read(bytes)) {
            case FrameDecoder::State::incomplete:
                return State::waiting;
            case FrameDecoder::State::broken:
                if (fault() == FrameFault::version) return State::other_version;
                if (fault() == FrameFault::mac && awaited_ == FrameType::proof)
                    return State::wrong_secret;
                return State::not_vescomm;
            case FrameDecoder::State::complete:
                break;
        }
        const State state = advance();
        if (state != State::waiting) return state;
    }
}

ClientHandshake::State ClientHandshake::advance() {
    const FrameType type = keys_.decoder.type();
    if (awaited_ == FrameType::welcome && type == FrameType::failure) {
        WireReader reader(keys_.decoder.payload());
        get_group(reader);
        refusal_ = read_failure(reader);
        return State::refused;
    }
    if (awaited_ == FrameType::welcome && type == FrameType::note) {
        note_ = keys_.decoder.payload();
        return State::waiting;
    }
    if (type != awaited_) return State::not_vescomm;
    if (type == FrameType::challenge) {
        std::string_view payload = keys_.decoder.payload();
        if (!take_nonce(payload, listener_) || !payload.empty()) return State::not_vescomm;
        use_keys(0);
        awaited_ = FrameType::proof;
        return State::waiting;
    }
    if (type == FrameType::proof) {
        keys_.decoder.set_payload_limit(max_payload_bytes);
        awaited_ = FrameType::welcome;
        authenticated_ = true;
        return State::authenticated;
    }
    return State::welcomed;
}

// ---- failures ----

std::string failure_payload(const GroupId &group, vescomm_status_t status, std::string_view why) {
    std::string payload;
    put_group(payload, group);
    put_number(payload, static_cast<std::uint32_t>(status));
    payload.append(why.substr(0, max_sentence_bytes));
    return payload;
}

Error read_failure(WireReader &reader) {
    const auto status = static_cast<vescomm_status_t>(reader.number<std::uint32_t>());
    if (!reader.good() || status >= VESCOMM_OK)
        return Error(VESCOMM_ERROR_INTERNAL,
                     "a peer sent a failure without a reason; please report this");
    return Error(status, std::string(reader.rest().substr(0, max_sentence_bytes)));
}

}  // namespace vescomm::internal
