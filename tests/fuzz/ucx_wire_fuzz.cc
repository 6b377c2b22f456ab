// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages between ranks over UCX, and their addresses and offers (transport/ucx_wire.h).
//
//     byte 0    0: a header; 1: a batch; 2: an address; 3: an offer, both with the
//               checksum of the input; 4, 5: the same with the right checksum; 6: parts of a batch
//
// Invariants: an accepted header is within all limits; an accepted batch stays within its memory;
// a parsed value is serialised to the same bytes.
#include "transport/ucx_wire.h"

#include <cstring>

#include "base/error.h"
#include "fuzz/fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace {

using namespace vescomm::internal;
using fuzz::require;

constexpr int ranks = 4;
constexpr std::uint64_t token = 0x1122334455667788;
constexpr std::size_t checksum_head_bytes = 24;

void header(std::string_view bytes) {
    const std::string_view head = bytes.substr(0, sizeof(UcxMessage));
    const std::uint64_t payload = bytes.size() - head.size();
    UcxMessage message;
    if (const char *why = parse_message(head.data(), head.size(), payload, ranks, token, message))
        return fuzz::require_sentence(why);
    require(head == std::string_view(reinterpret_cast<const char *>(&message), sizeof message),
            "a header is copied unchanged");
    require(message.token == token && message.from < ranks && message.bytes == payload,
            "sender, secret and length are right");
    require(message.credit_flag < flags_per_channel, "the credit flag exists");
    if (message.kind == MessageKind::put || message.kind == MessageKind::batch)
        require(message.signal.channel < max_channels && message.signal.flag < flags_per_channel,
                "the signal exists");
}

// A memory between two walls, which no batch may write.
struct Memory {
    static constexpr std::size_t wall = 64, bytes = 128;
    std::vector<std::byte> all = std::vector<std::byte>(wall + bytes + wall, std::byte{0x55});

    std::byte *begin() { return all.data() + wall; }
    bool walls_stand() const {
        for (std::size_t i = 0; i < wall; ++i)
            if (all[i] != std::byte{0x55} || all[wall + bytes + i] != std::byte{0x55}) return false;
        return true;
    }
};

void batch(std::string_view bytes) {
    Memory memory;
    const auto *data = reinterpret_cast<const std::byte *>(bytes.data());
    if (const char *why = check_batch(data, bytes.size(), Memory::bytes))
        return fuzz::require_sentence(why);
    scatter_batch(data, bytes.size(), memory.begin());
    require(memory.walls_stand(), "a batch stays within its memory");
}

void parts(fuzz::Input input) {
    Memory expected, memory;
    std::vector<std::byte> batch;
    while (!input.empty()) {
        const std::string_view bytes = input.take(input.below(16));
        const std::uint64_t offset = input.below(Memory::bytes - bytes.size() + 1);
        const auto *from = reinterpret_cast<const std::byte *>(bytes.data());
        append_part(batch, offset, from, bytes.size());
        std::copy(from, from + bytes.size(), expected.begin() + offset);
    }
    require(check_batch(batch.data(), batch.size(), Memory::bytes) == nullptr,
            "a valid batch is accepted");
    scatter_batch(batch.data(), batch.size(), memory.begin());
    require(memory.all == expected.all, "every part of a batch arrives");
}

// Returns bytes with their right checksum.
std::string with_checksum(std::string bytes) {
    if (bytes.size() < checksum_head_bytes) return bytes;
    std::uint32_t magic = 0;
    std::memcpy(&magic, bytes.data(), sizeof magic);
    const std::uint64_t body = bytes.size() - checksum_head_bytes;
    const std::uint64_t sum = XXH3_64bits_withSeed(bytes.data() + checksum_head_bytes, body, magic);
    std::memcpy(bytes.data() + 8, &body, sizeof body);
    std::memcpy(bytes.data() + 16, &sum, sizeof sum);
    return bytes;
}

void address(const std::string &bytes) try {
    const UcxAddress opened = parse_ucx_address(bytes, 1);
    require(opened.rank == 1 && !opened.worker.empty(), "an address is that of its rank");
    const UcxAddress again = parse_ucx_address(serialise(opened), 1);
    require(again.worker == opened.worker && again.token == opened.token &&
                again.ucx_major == opened.ucx_major && again.ucx_minor == opened.ucx_minor,
            "a parsed address is the one that was serialised");
} catch (const Error &error) {
    fuzz::require_sentence(error.what());
}

void offer(const std::string &bytes) try {
    const Offer opened = parse_offer(bytes, 5, 1);
    require(opened.memory == 5 && opened.rank == 1, "an offer is for its memory, and of its rank");
    require(serialise(opened) == bytes, "a parsed offer is serialised to the same bytes");
} catch (const Error &error) {
    fuzz::require_sentence(error.what());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const std::size_t what = input.below(7);
    const std::string bytes(input.rest());
    switch (what) {
        case 0:
            header(bytes);
            break;
        case 1:
            batch(bytes);
            break;
        case 2:
            address(bytes);
            break;
        case 3:
            offer(bytes);
            break;
        case 4:
            address(with_checksum(bytes));
            break;
        case 5:
            offer(with_checksum(bytes));
            break;
        default:
            parts(input);
            break;
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    UcxMessage message;
    message.from = 1;
    message.token = token;
    message.bytes = 3;
    const auto bytes_of = [](const UcxMessage &message) {
        return std::string(reinterpret_cast<const char *>(&message), sizeof message);
    };
    UcxMessage hello = message;
    hello.kind = MessageKind::hello;
    hello.bytes = 0;
    std::vector<std::byte> batch;
    append_part(batch, 16, reinterpret_cast<const std::byte *>("abcd"), 4);
    append_part(batch, 124, reinterpret_cast<const std::byte *>("efgh"), 4);
    const std::string parts(reinterpret_cast<const char *>(batch.data()), batch.size());
    const std::string address = serialise(UcxAddress{1, 13, 1, 42, "worker"}),
                      offer = serialise(Offer{5, 1, 99});
    const auto kind = [](char what) { return std::string(1, what); };
    return {
        {"put", kind(0) + bytes_of(message) + "abc"},
        {"hello", kind(0) + bytes_of(hello)},
        {"batch", kind(1) + parts},
        {"batch-cut", kind(1) + parts.substr(0, parts.size() - 1)},
        {"address", kind(2) + address},
        {"address-checked", kind(4) + address},
        {"offer", kind(3) + offer},
        {"offer-checked", kind(5) + offer},
        {"parts", kind(6) + "\3abc\7\1x\x7f"},
    };
}
