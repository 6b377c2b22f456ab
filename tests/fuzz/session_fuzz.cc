// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The handshake of the control plane (bootstrap/handshake.h) against a peer that knows the secret,
// a peer that does not, and a man in the middle. Frames are encoded here with the right keys, so
// that mutations get past the MAC.
//
//     byte 0    selects one of the three
//     byte 1    the size of the pieces in which bytes arrive
//     the rest  a script: frames for the first two; changes of bytes in transit for the third
//
// Invariants: a state machine ends in the state of a model of the protocol; no process joins
// without the secret; a changed byte never leaves both ends believing that they met.
#include "bootstrap/handshake.h"
#include "bootstrap/wire.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

constexpr std::string_view secret = "the secret of the job";
constexpr std::size_t max_reply_bytes = 512;
constexpr Clock::time_point now{std::chrono::hours(7)};

Claim claim_of(std::uint32_t rank, std::uint32_t ranks) {
    Claim claim;
    claim.rank = rank;
    claim.ranks = ranks;
    return claim;
}

struct ScriptFrame {
    FrameType type = FrameType::hello;
    std::string payload;
    bool damaged = false;
    std::size_t damage_at = 0;

    explicit ScriptFrame(fuzz::Input &input, FrameType usual) {
        const std::uint8_t what = input.byte();
        // A script of zeros is the regular protocol.
        type = what % 16 == 0
                   ? usual
                   : static_cast<FrameType>(1 + what % static_cast<std::size_t>(last_frame_type));
        damaged = what >= 0xf0;
        damage_at = damaged ? input.byte() : 0;
        payload = input.text();
    }

    std::string encode(FrameEncoder &encoder) const {
        std::string frame;
        encoder.append(frame, type, payload);
        if (damaged) {
            char &byte = frame[damage_at % frame.size()];
            byte = static_cast<char>(byte ^ 1);
        }
        return frame;
    }
};

// Decodes frames of one direction as the other end would.
std::vector<std::string> read_frames(std::string_view bytes, FrameDecoder &decoder,
                                     std::size_t count) {
    std::vector<std::string> payloads;
    while (payloads.size() < count && decoder.read(bytes) == FrameDecoder::State::complete)
        payloads.emplace_back(decoder.payload());
    return payloads;
}

Nonce nonce_of(std::string_view payload) {
    Nonce nonce{};
    require(payload.size() == nonce.size(), "a nonce has its size");
    std::copy(payload.begin(), payload.end(), nonce.begin());
    return nonce;
}

void against_rank_0(fuzz::Input input, std::size_t step, std::string_view known) {
    Cookies cookies;
    ServerHandshake server(secret, cookies);
    FrameEncoder encoder(open_key());
    Nonce joiner{7};
    std::string nonce(joiner.begin(), joiner.end());
    bool greeted = false;
    for (int frames = 0; frames < 4; ++frames) {
        ScriptFrame script(input, greeted ? FrameType::join : FrameType::hello);
        if (!greeted && script.payload.empty()) script.payload = nonce;
        const std::string frame = script.encode(encoder);
        std::string reply;
        auto state = ServerHandshake::State::waiting;
        fuzz::feed(frame, step, [&](std::string_view &piece) {
            state = server.read(piece, reply, now);
            return state == ServerHandshake::State::waiting;
        });
        require(reply.size() <= max_reply_bytes, "replies to an unauthenticated peer are short");
        const bool right = !script.damaged && script.payload.size() <= max_unauthenticated_payload;
        if (!greeted) {
            const bool hello =
                right && script.type == FrameType::hello && script.payload.size() == joiner.size();
            if (!hello)
                return require(state != ServerHandshake::State::joined, "hello comes first");
            require(state == ServerHandshake::State::waiting && !reply.empty(),
                    "a hello is answered");
            joiner = nonce_of(script.payload);
            FrameDecoder decoder(open_key(), max_unauthenticated_payload);
            const auto challenge = read_frames(reply, decoder, 1);
            require(challenge.size() == 1, "rank 0 sends a challenge");
            encoder = FrameEncoder(
                session_key(known, Direction::from_joiner, joiner, nonce_of(challenge[0])));
            greeted = true;
            continue;
        }
        const bool join = right && known == secret && script.type == FrameType::join;
        if (state != ServerHandshake::State::joined) {
            // The join has another size, or the frame another type: the connection is closed, or
            // more bytes are awaited.
            Claim claim;
            return require(!join || !read_claim(script.payload, claim), "a valid join is accepted");
        }
        require(join, "no process joins without the secret and a join");
        Claim sent;
        require(read_claim(script.payload, sent) && server.claim() == sent &&
                    encode(sent) == script.payload,
                "the claim is the one that was sent");
        return;
    }
}

void against_joiner(fuzz::Input input, std::size_t step, std::string_view known) {
    ClientHandshake client(secret, claim_of(1, 2));
    FrameDecoder hello(open_key(), max_unauthenticated_payload);
    const auto greeting = read_frames(client.hello(), hello, 1);
    require(greeting.size() == 1, "a joiner says hello");
    FrameEncoder encoder(open_key());
    const Nonce rank_0{9};
    const FrameType order[] = {FrameType::challenge, FrameType::proof, FrameType::welcome};
    for (std::size_t step_of_protocol = 0; step_of_protocol < 3; ++step_of_protocol) {
        ScriptFrame script(input, order[step_of_protocol]);
        if (step_of_protocol == 0 && script.payload.empty())
            script.payload.assign(rank_0.begin(), rank_0.end());
        auto state = ClientHandshake::State::waiting;
        fuzz::feed(script.encode(encoder), step, [&](std::string_view &piece) {
            state = client.read(piece);
            return state == ClientHandshake::State::waiting;
        });
        const bool sealed = !script.damaged && (step_of_protocol == 0 || known == secret);
        if (state == ClientHandshake::State::refused) {
            require(sealed && step_of_protocol == 2 && script.type == FrameType::failure,
                    "only rank 0 refuses");
            require(client.refusal().status < VESCOMM_OK, "a refusal is an error");
            return;
        }
        const ClientHandshake::State good[] = {ClientHandshake::State::waiting,
                                               ClientHandshake::State::authenticated,
                                               ClientHandshake::State::welcomed};
        const bool right = sealed && script.type == order[step_of_protocol];
        if (state != good[step_of_protocol] || !right) {
            require(state != ClientHandshake::State::authenticated &&
                        state != ClientHandshake::State::welcomed,
                    "only rank 0 is authenticated");
            return;
        }
        if (step_of_protocol == 0) {
            if (script.payload.size() != Nonce{}.size()) return;
            encoder = FrameEncoder(session_key(known, Direction::to_joiner, nonce_of(greeting[0]),
                                               nonce_of(script.payload)));
        } else if (step_of_protocol == 1) {
            (void)client.join();
        }
    }
}

// Changes to bytes in transit. `extended`: bytes follow that were not sent.
enum class Tampered { no, extended, changed };

Tampered tamper(fuzz::Input &input, std::string &bytes) {
    const std::string before = bytes;
    const std::uint8_t what = input.byte();
    const std::size_t at = input.byte() % std::max<std::size_t>(bytes.size(), 1);
    fuzz::change(input, what, at, bytes);
    if (bytes == before) return Tampered::no;
    return bytes.starts_with(before) ? Tampered::extended : Tampered::changed;
}

void in_the_middle(fuzz::Input input, std::size_t step) {
    const auto rank = input.number<std::uint32_t>();
    const Claim claim = claim_of(rank, input.number<std::uint32_t>());
    Cookies cookies;
    ServerHandshake server(secret, cookies);
    ClientHandshake client(secret, claim);
    bool joined = false, authenticated = false, welcomed = false;
    Tampered tampered = Tampered::no;

    const auto to_rank_0 = [&](std::string bytes) {
        tampered = std::max(tampered, tamper(input, bytes));
        std::string reply;
        fuzz::feed(bytes, step, [&](std::string_view &piece) {
            const auto state = server.read(piece, reply, now);
            joined |= state == ServerHandshake::State::joined;
            return state == ServerHandshake::State::waiting;
        });
        return reply;
    };
    const auto to_joiner = [&](std::string bytes) {
        tampered = std::max(tampered, tamper(input, bytes));
        fuzz::feed(bytes, step, [&](std::string_view &piece) {
            const auto state = client.read(piece);
            authenticated |= state == ClientHandshake::State::authenticated;
            welcomed |= state == ClientHandshake::State::welcomed;
            return state == ClientHandshake::State::waiting;
        });
    };
    to_joiner(to_rank_0(client.hello()));
    if (authenticated) to_rank_0(client.join());
    if (joined) {
        require(authenticated, "rank 0 accepts only peers that have authenticated it");
        require(server.claim() == claim, "the claim is the joiner's");
        SessionKeys session = server.take_keys();
        std::string welcome;
        session.encoder.append(welcome, FrameType::welcome, {});
        to_joiner(welcome);
    }
    const bool met = joined && welcomed;
    require(tampered != Tampered::no || met, "two ranks meet if no byte is changed");
    require(tampered != Tampered::changed || !met, "every changed byte is detected");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const std::size_t what = input.below(5);
    const std::size_t step = 1 + input.byte();
    const std::string_view known = what % 2 == 0 ? secret : "a guess";
    if (what < 2) against_rank_0(input, step, known);
    else if (what < 4) against_joiner(input, step, known);
    else in_the_middle(input, step);
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const std::string claim = encode(claim_of(1, 2));
    const std::string join = std::string(1, '\0') + static_cast<char>(claim.size()) + claim;
    const std::string refusal = failure_payload(whole_session, VESCOMM_ERROR_TIMEOUT, "no");
    // The type of the frame is 1 + what % last_frame_type.
    const std::string failure = std::string(1, static_cast<char>(FrameType::failure) - 1) +
                                static_cast<char>(refusal.size()) + refusal;
    std::vector<Seed> seeds;
    const auto add = [&](const char *name, std::string_view head, const std::string &script) {
        seeds.push_back({name, std::string(head) + script});
    };
    add("rank-0-joined", {"\0\xff", 2}, std::string(2, '\0') + join);
    add("rank-0-joined-bytewise", {"\0\0", 2}, std::string(2, '\0') + join);
    add("rank-0-wrong-secret", {"\1\xff", 2}, std::string(2, '\0') + join);
    add("rank-0-join-too-long", {"\0\xff", 2},
        std::string("\0\0\0\x09"
                    "123456789",
                    13));
    add("joiner-welcomed", {"\2\xff", 2}, std::string(6, '\0'));
    add("joiner-refused", {"\2\7", 2}, std::string(4, '\0') + failure);
    add("joiner-wrong-secret", {"\3\xff", 2}, std::string(6, '\0'));
    add("middle-alone", {"\4\xff", 2}, std::string("\1\0\0\0\2\0\0\0", 8));
    add("middle-changes-a-byte", {"\4\0", 2}, std::string("\1\0\0\0\2\0\0\0\1\x20\1", 11));
    add("middle-changes-the-join", {"\4\0", 2},
        std::string("\1\0\0\0\2\0\0\0\0\0\0\0\1\x18\1", 15));
    add("middle-repeats", {"\4\0", 2}, std::string("\1\0\0\0\2\0\0\0\5\0", 10));
    return seeds;
}
