// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_wire.h"

#include <cstring>

#include "base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace vescomm {
namespace {

// Tells what is sealed, and that it is: "VCU" and a letter for the kind. A change of the format
// changes the letter.
constexpr std::uint32_t address_magic = 0x41554356;  // "VCUA"
constexpr std::uint32_t offer_magic = 0x4f554356;  // "VCUO"

struct Seal {
    std::uint32_t magic = 0;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;  // that follow the seal
    std::uint64_t checksum = 0;  // of those bytes, seeded with the magic
};

struct AddressHead {
    std::uint32_t ucx_major, ucx_minor, rank, reserved;
    std::uint64_t token;
};

template <typename Head>
std::string seal_up(std::uint32_t magic, const Head &head, const std::string &tail) {
    std::string body(reinterpret_cast<const char *>(&head), sizeof head);
    body += tail;
    const Seal seal{magic, 0, body.size(), XXH3_64bits_withSeed(body.data(), body.size(), magic)};
    return std::string(reinterpret_cast<const char *>(&seal), sizeof seal) + body;
}

[[noreturn]] void refuse(const std::string &what, const std::string &why) {
    throw Error(VESCOMM_ERROR_SYSTEM, what + " arrived damaged: " + why +
                                          "; all ranks must run the same version of vescomm");
}

// Splits what seal_up() joined.
template <typename Head>
std::string break_seal(std::uint32_t magic, std::string_view sealed, const std::string &what,
                       Head &head) {
    Seal seal;
    if (sealed.size() < sizeof seal + sizeof head)
        refuse(what, std::to_string(sealed.size()) + " bytes are fewer than the " +
                         std::to_string(sizeof seal + sizeof head) + " of its fixed part");
    std::memcpy(&seal, sealed.data(), sizeof seal);
    const std::string_view body = sealed.substr(sizeof seal);
    if (seal.magic != magic || seal.reserved != 0) refuse(what, "it does not begin with its mark");
    if (seal.bytes != body.size())
        refuse(what, "it announces " + std::to_string(seal.bytes) + " bytes and has " +
                         std::to_string(body.size()));
    if (seal.checksum != XXH3_64bits_withSeed(body.data(), body.size(), magic))
        refuse(what, "its checksum does not match");
    std::memcpy(&head, body.data(), sizeof head);
    return std::string(body.substr(sizeof head));
}

}  // namespace

const char *parse_message(const void *header, std::size_t header_bytes, std::uint64_t payload_bytes,
                          int ranks, std::uint64_t token, Message &message) noexcept {
    if (header_bytes != sizeof message) return "its header has the wrong length";
    std::memcpy(&message, header, sizeof message);
    if (message.token != token) return "it does not know the secret of this job";
    if (message.from >= static_cast<std::uint32_t>(ranks)) return "its sender is not a rank";
    if (message.bytes != payload_bytes) return "its length is not the one announced";
    const bool raises = message.kind == MessageKind::put || message.kind == MessageKind::batch;
    if (message.called != 0 && !raises) return "it says what was called, and raises nothing";
    if (message.early_flag >= flags_per_channel) return "it waits for a flag that is out of range";
    switch (message.kind) {
        case MessageKind::put:
        case MessageKind::batch:
            if (message.signal.channel >= most_channels) return "its channel is out of range";
            if (message.signal.flag >= flags_per_channel) return "its flag is out of range";
            return nullptr;
        case MessageKind::piece:
            return message.bytes > 0 ? nullptr : "it is an empty piece";
        case MessageKind::hello:
        case MessageKind::welcome:
        case MessageKind::goodbye:
            return message.bytes == 0 ? nullptr : "it carries bytes that it should not";
    }
    return "its kind is unknown";
}

void append_part(std::vector<std::byte> &batch, std::uint64_t offset, const std::byte *from,
                 std::uint64_t bytes) {
    const BatchPart part{offset, bytes};
    const auto *head = reinterpret_cast<const std::byte *>(&part);
    batch.insert(batch.end(), head, head + sizeof part);
    batch.insert(batch.end(), from, from + bytes);
}

const char *check_batch(const std::byte *batch, std::uint64_t bytes,
                        std::uint64_t memory_bytes) noexcept {
    BatchPart part;
    for (std::uint64_t at = 0; at < bytes; at += part.bytes) {
        if (bytes - at < sizeof part) return "it ends within the head of a part";
        std::memcpy(&part, batch + at, sizeof part);
        at += sizeof part;
        if (part.bytes > bytes - at) return "it ends within a part";
        if (!within(part.offset, part.bytes, memory_bytes))
            return "a part of it does not fit into the memory";
    }
    return nullptr;
}

void scatter_batch(const std::byte *batch, std::uint64_t bytes, std::byte *memory) noexcept {
    BatchPart part;
    for (std::uint64_t at = 0; at < bytes; at += part.bytes) {
        std::memcpy(&part, batch + at, sizeof part);
        at += sizeof part;
        std::memcpy(memory + part.offset, batch + at, part.bytes);
    }
}

std::string seal(const Address &address) {
    const AddressHead head{address.ucx_major, address.ucx_minor, address.rank, 0, address.token};
    return seal_up(address_magic, head, address.worker);
}

Address open_address(std::string_view sealed, int rank) {
    const std::string what = "the UCX address of rank " + std::to_string(rank);
    AddressHead head;
    Address address;
    address.worker = break_seal(address_magic, sealed, what, head);
    if (head.rank != static_cast<std::uint32_t>(rank))
        refuse(what, "it is that of rank " + std::to_string(head.rank));
    if (address.worker.empty()) refuse(what, "it is empty");
    address.ucx_major = head.ucx_major;
    address.ucx_minor = head.ucx_minor;
    address.rank = head.rank;
    address.token = head.token;
    return address;
}

std::string seal(const Offer &offer) {
    return seal_up(offer_magic, offer, {});
}

Offer open_offer(std::string_view sealed, MemoryId memory, int rank) {
    const std::string what =
        "the offer of rank " + std::to_string(rank) + " for memory " + std::to_string(memory);
    Offer offer;
    if (!break_seal(offer_magic, sealed, what, offer).empty()) refuse(what, "it is too long");
    if (offer.memory != memory || offer.rank != static_cast<std::uint32_t>(rank))
        refuse(what, "it is that of rank " + std::to_string(offer.rank) + " for memory " +
                         std::to_string(offer.memory));
    return offer;
}

}  // namespace vescomm
