// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer entry: whatever a stranger sends to rank 0, and whatever a stranger answers to a rank.
//
//     clang++ -fsanitize=fuzzer,address,undefined … frame_fuzz.cc … -lcrypto
//
// The test `frame_fuzz` runs it on random_inputs.cc instead.
//
// The first byte chooses the size of the pieces in which the rest arrives. Bytes that happen to be
// sealed rightly cannot be found by chance, so the decoder is also run on a frame made of them.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "bootstrap/frame.h"
#include "bootstrap/gathering.h"
#include "bootstrap/handshake.h"

namespace {

using namespace vescomm;

constexpr std::string_view secret = "fuzz";

template <typename Read>
void feed(std::string_view bytes, std::size_t step, Read read) {
    while (!bytes.empty()) {
        std::string_view piece = bytes.substr(0, step);
        bytes.remove_prefix(piece.size());
        if (!read(piece)) return;
    }
}

void require(bool holds) {
    if (!holds) std::abort();
}

void strangers(std::string_view bytes, std::size_t step) {
    Doorkeeper doorkeeper(secret);
    std::string reply;
    feed(bytes, step, [&](std::string_view &piece) {
        const auto state = doorkeeper.read(piece, reply);
        require(state != Doorkeeper::State::joined && reply.size() < 512);
        return state == Doorkeeper::State::waiting;
    });
    Joiner joiner(secret, {1, 2});
    joiner.hello();
    feed(bytes, step, [&](std::string_view &piece) {
        const auto state = joiner.read(piece);
        require(state != Joiner::State::welcomed && state != Joiner::State::proved);
        return state == Joiner::State::waiting;
    });
}

void authentic(std::string_view bytes, std::size_t step) {
    const std::string_view payload = bytes.substr(0, stranger_payload_bytes);
    FrameEncoder encoder(open_key());
    std::string frame;
    encoder.append(frame, FrameType::data, payload);
    FrameDecoder decoder(open_key(), stranger_payload_bytes);
    bool whole = false;
    feed(frame, step, [&](std::string_view &piece) {
        whole = decoder.read(piece) == FrameDecoder::State::complete;
        return !whole;
    });
    require(whole && decoder.payload() == payload);
    (void)read_failure(payload);
    (void)read_contribution_head(payload);
    GatherReader reader(3);
    feed(bytes, step, [&](std::string_view &piece) { return reader.add(piece); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    if (size == 0) return 0;
    const std::string_view bytes(reinterpret_cast<const char *>(data) + 1, size - 1);
    const std::size_t step = 1 + data[0];
    strangers(bytes, step);
    authentic(bytes, step);
    return 0;
}
