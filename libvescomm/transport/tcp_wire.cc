// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_wire.h"

namespace vescomm::internal {

const char *check_message(const TcpMessage &message) noexcept {
    if (message.bytes > max_message_bytes) return "it is longer than a message may be";
    if (message.tag > max_tag) return "its tag is out of range";
    if (message.credit_flag >= flags_per_channel) return "it waits for a flag that is out of range";
    switch (message.kind) {
        case TcpKind::batch:
            if (message.bytes > max_batch_bytes) return "it is a batch that is too long";
            [[fallthrough]];
        case TcpKind::put:
            if (message.signal.channel >= max_channels) return "its channel is out of range";
            if (message.signal.flag >= flags_per_channel) return "its flag is out of range";
            return nullptr;
        case TcpKind::piece:
            if (message.signature != 0) return "it carries a signature and raises no signal";
            return message.bytes > 0 ? nullptr : "it is an empty piece";
        case TcpKind::request_to_send:
            if (message.signal.channel >= max_channels) return "its channel is out of range";
            if (message.signal.flag >= flags_per_channel) return "its flag is out of range";
            [[fallthrough]];
        case TcpKind::acknowledgement:
        case TcpKind::goodbye:
            return message.bytes == 0 ? nullptr : "it carries bytes that it should not";
    }
    return "its kind is unknown";
}

}  // namespace vescomm::internal
