// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/handshake.h"

#include <algorithm>
#include <utility>

#include "bootstrap/wire.h"

namespace vescomm {

namespace {

// Longer sentences are cut: they are for people, and must fit any frame.
constexpr std::size_t longest_sentence = 8 << 10;

Session open_session() {
    return {FrameEncoder(open_key()), FrameDecoder(open_key(), stranger_payload_bytes)};
}

std::string_view view(const Nonce &nonce) {
    return {reinterpret_cast<const char *>(nonce.data()), nonce.size()};
}

// False when it is not the size of a nonce.
bool read_nonce(std::string_view payload, Nonce &nonce) {
    if (payload.size() != nonce.size()) return false;
    std::copy(payload.begin(), payload.end(), nonce.begin());
    return true;
}

}  // namespace

Doorkeeper::Doorkeeper(std::string_view secret)
    : secret_(secret), nonce_(random_nonce()), session_(open_session()) {}

Doorkeeper::State Doorkeeper::read(std::string_view &bytes, std::string &reply) {
    for (;;) {
        switch (session_.decoder.read(bytes)) {
            case FrameDecoder::State::incomplete:
                return State::waiting;
            case FrameDecoder::State::broken:
                // A rank of another version deserves to be told; its program can then say so.
                if (session_.decoder.fault() == FrameFault::version && !greeted_)
                    session_.encoder.append(reply, FrameType::challenge, view(nonce_));
                return State::stray;
            case FrameDecoder::State::complete:
                break;
        }
        if (greeted_) return read_join();
        if (answer_hello(reply) == State::stray) return State::stray;
    }
}

Doorkeeper::State Doorkeeper::answer_hello(std::string &reply) {
    Nonce joiner;
    if (session_.decoder.type() != FrameType::hello ||
        !read_nonce(session_.decoder.payload(), joiner))
        return State::stray;
    session_.encoder.append(reply, FrameType::challenge, view(nonce_));
    session_.encoder = FrameEncoder(session_key(secret_, Direction::from_rank_0, joiner, nonce_));
    session_.decoder = FrameDecoder(session_key(secret_, Direction::to_rank_0, joiner, nonce_),
                                    stranger_payload_bytes);
    session_.encoder.append(reply, FrameType::proof, {});
    greeted_ = true;
    return State::waiting;
}

Doorkeeper::State Doorkeeper::read_join() {
    if (session_.decoder.type() != FrameType::join) return State::stray;
    WireReader reader(session_.decoder.payload());
    claim_.rank = reader.number<std::uint32_t>();
    claim_.ranks = reader.number<std::uint32_t>();
    if (!reader.finished()) return State::stray;
    session_.decoder.set_payload_limit(largest_payload_bytes);
    return State::joined;
}

Joiner::Joiner(std::string_view secret, Claim claim)
    : secret_(secret), claim_(claim), nonce_(random_nonce()), session_(open_session()) {}

std::string Joiner::hello() {
    std::string frame;
    session_.encoder.append(frame, FrameType::hello, view(nonce_));
    return frame;
}

std::string Joiner::join() {
    std::string payload;
    put_number(payload, claim_.rank);
    put_number(payload, claim_.ranks);
    std::string frame;
    session_.encoder.append(frame, FrameType::join, payload);
    return frame;
}

Joiner::State Joiner::read(std::string_view &bytes) {
    for (;;) {
        switch (session_.decoder.read(bytes)) {
            case FrameDecoder::State::incomplete:
                return State::waiting;
            case FrameDecoder::State::broken:
                if (fault() == FrameFault::version) return State::other_version;
                if (fault() == FrameFault::seal && awaited_ == FrameType::proof)
                    return State::wrong_secret;
                return State::stranger;
            case FrameDecoder::State::complete:
                break;
        }
        const State state = advance();
        if (state != State::waiting) return state;
    }
}

Joiner::State Joiner::advance() {
    const FrameType type = session_.decoder.type();
    if (awaited_ == FrameType::welcome && type == FrameType::failure) {
        refusal_ = read_failure(session_.decoder.payload());
        return State::refused;
    }
    if (type != awaited_) return State::stranger;
    if (type == FrameType::challenge) {
        Nonce rank_0;
        if (!read_nonce(session_.decoder.payload(), rank_0)) return State::stranger;
        session_.encoder = FrameEncoder(session_key(secret_, Direction::to_rank_0, nonce_, rank_0));
        session_.decoder = FrameDecoder(
            session_key(secret_, Direction::from_rank_0, nonce_, rank_0), stranger_payload_bytes);
        awaited_ = FrameType::proof;
        return State::waiting;
    }
    if (type == FrameType::proof) {
        session_.decoder.set_payload_limit(largest_payload_bytes);
        awaited_ = FrameType::welcome;
        return State::proved;
    }
    return State::welcomed;
}

std::string failure_payload(vescomm_status_t status, std::string_view why) {
    std::string payload;
    put_number(payload, static_cast<std::uint32_t>(status));
    payload.append(why.substr(0, longest_sentence));
    return payload;
}

Error read_failure(std::string_view payload) {
    WireReader reader(payload);
    const auto status = static_cast<vescomm_status_t>(reader.number<std::uint32_t>());
    if (!reader.good() || status >= VESCOMM_OK)
        return Error(VESCOMM_ERROR_INTERNAL,
                     "a peer sent a failure without a reason; please report this");
    return Error(status, std::string(reader.rest().substr(0, longest_sentence)));
}

}  // namespace vescomm
