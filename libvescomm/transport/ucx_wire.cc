// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_wire.h"

#include <cstring>

#include "transport/checksummed.h"

namespace vescomm::internal {
namespace {

constexpr std::uint32_t address_magic = 0x41554356;  // "VCUA"

struct AddressHead {
    std::uint32_t ucx_major, ucx_minor, rank, reserved;
    std::uint64_t token;
};

}  // namespace

const char *parse_message(const void *header, std::size_t header_bytes, std::uint64_t payload_bytes,
                          int processes, std::uint64_t token, UcxMessage &message) noexcept {
    UcxMessage read;
    if (header_bytes != sizeof read) return "its header has the wrong length";
    std::memcpy(&read, header, sizeof read);
    if (read.token != token) return "it does not know the secret of this job";
    if (read.from >= static_cast<std::uint32_t>(processes)) return "its sender is not a process";
    message = read;
    if (message.bytes != payload_bytes) return "its length is not the one announced";
    const bool raises = message.kind == MessageKind::put || message.kind == MessageKind::batch;
    if (message.signature != 0 && !raises) return "it carries a signature and raises no signal";
    if (message.tag > max_tag) return "its tag is out of range";
    if (message.reserved != 0) return "a reserved field of it is in use";
    if (message.credit_flag >= flags_per_channel) return "it waits for a flag that is out of range";
    switch (message.kind) {
        case MessageKind::put:
        case MessageKind::batch:
            if (message.signal.channel >= max_channels) return "its channel is out of range";
            if (message.signal.flag >= flags_per_channel) return "its flag is out of range";
            return nullptr;
        case MessageKind::piece:
            return message.bytes > 0 ? nullptr : "it is an empty piece";
        case MessageKind::request_to_send:
            if (message.signal.channel >= max_channels) return "its channel is out of range";
            if (message.signal.flag >= flags_per_channel) return "its flag is out of range";
            [[fallthrough]];
        case MessageKind::acknowledgement:
        case MessageKind::hello:
        case MessageKind::welcome:
        case MessageKind::goodbye:
        case MessageKind::filler:
            return message.bytes == 0 ? nullptr : "it carries bytes that it should not";
    }
    return "its kind is unknown";
}

std::string serialise(const UcxAddress &address) {
    const AddressHead head{address.ucx_major, address.ucx_minor, address.rank, 0, address.token};
    return join_checksummed(address_magic, head, address.worker);
}

UcxAddress parse_ucx_address(std::string_view serialised, int rank) {
    const std::string what = "the UCX address of rank " + std::to_string(rank);
    AddressHead head;
    UcxAddress address;
    address.worker = split_checksummed(address_magic, serialised, what, head);
    if (head.rank != static_cast<std::uint32_t>(rank))
        refuse_damaged(what, "it is that of rank " + std::to_string(head.rank));
    if (address.worker.empty()) refuse_damaged(what, "it is empty");
    address.ucx_major = head.ucx_major;
    address.ucx_minor = head.ucx_minor;
    address.rank = head.rank;
    address.token = head.token;
    return address;
}

}  // namespace vescomm::internal
