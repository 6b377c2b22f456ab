// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Frames of the control plane (bootstrap/frame.h).
//
//     byte 0    the size of the pieces in which the bytes arrive
//     byte 1    0: the rest is sent by an unauthenticated peer; otherwise a script of frames, which
//               are encoded, perhaps damaged, and decoded
//
// Invariants: a fault is final and consumes no bytes; no payload exceeds the limit; a frame decodes
// to what was encoded; a frame with one changed byte is never accepted.
#include "bootstrap/frame.h"

#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

void check_fault(FrameDecoder &decoder) {
    require(decoder.fault() != FrameFault::none, "a broken decoder has a fault");
    require(std::string_view(describe(decoder.fault())) != "something unknown",
            "every fault is described");
    std::string_view more = "more";
    require(decoder.read(more) == FrameDecoder::State::broken && more.size() == 4,
            "a fault is final");
}

// Uses only keys that an attacker has, so whole frames can be valid.
void raw(std::string_view bytes, std::size_t step) {
    FrameDecoder decoder(open_key(), max_unauthenticated_payload);
    fuzz::feed(bytes, step, [&](std::string_view &piece) {
        switch (decoder.read(piece)) {
            case FrameDecoder::State::incomplete:
                require(piece.empty(), "an incomplete frame takes all bytes");
                return true;
            case FrameDecoder::State::complete:
                require(decoder.payload().size() <= max_unauthenticated_payload,
                        "a payload is within its limit");
                require(decoder.type() >= FrameType::hello && decoder.type() <= last_frame_type,
                        "a frame has a known type");
                return true;
            case FrameDecoder::State::broken:
                check_fault(decoder);
                return false;
        }
        return false;
    });
}

void script(fuzz::Input input, std::size_t step) {
    const FrameKey key = session_key("secret", Direction::from_joiner, Nonce{1}, Nonce{2});
    FrameEncoder encoder(key);
    FrameDecoder decoder(key, max_unauthenticated_payload);
    while (!input.empty()) {
        const auto type =
            static_cast<FrameType>(1 + input.below(static_cast<std::size_t>(last_frame_type)));
        const std::string payload(input.text());
        const std::uint16_t at = input.number<std::uint16_t>();
        const std::uint8_t change = input.byte();
        std::string frame;
        encoder.append(frame, type, payload);
        require(frame.size() == frame_header_bytes + payload.size() + frame_mac_bytes,
                "a frame has the documented size");
        // Most frames arrive unchanged.
        const bool damaged = change != 0 && at % 4 == 0;
        if (damaged) {
            char &byte = frame[at / 4 % frame.size()];
            byte = static_cast<char>(byte ^ change);
        }
        bool arrived = false, broken = false;
        fuzz::feed(frame, step, [&](std::string_view &piece) {
            require(!arrived, "a frame does not end early");
            const auto state = decoder.read(piece);
            arrived = state == FrameDecoder::State::complete;
            broken = state == FrameDecoder::State::broken;
            return !broken;
        });
        if (broken) {
            require(damaged || payload.size() > max_unauthenticated_payload,
                    "a valid frame is accepted");
            return check_fault(decoder);
        }
        // A larger length makes the decoder wait for more bytes.
        if (damaged) return require(!arrived, "a damaged frame is not accepted");
        require(arrived && decoder.type() == type && decoder.payload() == payload,
                "a frame decodes to what was encoded");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const std::size_t step = 1 + input.byte();
    if (input.byte() == 0) raw(input.rest(), step);
    else script(input, step);
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    std::string frames;
    FrameEncoder encoder(open_key());
    encoder.append(frames, FrameType::hello, std::string(32, 'n'));
    encoder.append(frames, FrameType::challenge, std::string(32, 'm'));
    std::string other_version = frames;
    other_version[4] = 9;
    std::string too_long = frames;
    too_long[17] = 1;
    const std::string whole("\xff\0", 2), bytewise("\0\0", 2), script("\7\1", 2);
    return {
        {"two-frames", whole + frames},
        {"two-frames-bytewise", bytewise + frames},
        {"other-version", whole + other_version},
        {"too-long", whole + too_long},
        {"other-protocol", whole + "GET / HTTP/1.1\r\n\r\n"},
        {"script", script + std::string("\6\0\0\0\0\3\4join\0\0\0\7\2ab\0\0\0", 19)},
        {"script-damaged", script + std::string("\3\4join\0\0\0\3\4join\x50\0\1", 16)},
        {"script-long", script + std::string("\3\x50", 2) + std::string(0x50, 'x')},
    };
}
