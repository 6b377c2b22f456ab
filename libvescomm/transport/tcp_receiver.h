// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp_crypto.h"
#include "transport/tcp_hub.h"
#include "transport/tcp_wire.h"

namespace vescomm {

// One direction of a connection: the messages that come in. The bytes of a large put go straight
// to their place; a header, and what came with it, passes through the staging buffer.
//
//     socket ──┬──► rest of the put that is arriving, in its memory
//              └──► staging ──► header, header, bytes ...
class TcpReceiver {
public:
    enum class State {
        drained,  // there is nothing more for now
        more,  // there may be more
        failed,  // why() says what happened; the connection is of no use any more
    };

    TcpReceiver(TcpHub &hub, int process) : hub_(hub), process_(process) {}
    // Bytes come in records from now on. Throws.
    void encrypt(const FrameKey &key);

    // Reads once, without waiting. `moved` is set where anything came.
    State read(int socket, bool &moved) noexcept;

    // No byte of this communicator, or of this memory, is written from now on.
    void give_up(const TcpContext &context) noexcept;

    // Whether a message for this communicator has come in part.
    bool receiving(const TcpContext &context) const noexcept {
        return left_ > 0 && context_ == &context;
    }
    const std::string &why() const { return why_; }

private:
    State fail(const char *why) noexcept;
    State read_plain(int socket, bool &moved) noexcept;
    State read_records(int socket, bool &moved) noexcept;
    bool open_records() noexcept;
    bool consume(const std::byte *bytes, std::size_t size) noexcept;
    const char *begin(const std::byte *bytes, std::size_t &size) noexcept;
    void advance(std::size_t bytes) noexcept;
    void finish() noexcept;

    TcpHub &hub_;
    const int process_;
    // The message that is arriving.
    TcpMessage message_;
    std::size_t header_bytes_ = 0;  // of message_ that are here, while it is not complete
    std::uint64_t left_ = 0;  // bytes behind it that are still to come
    TcpContext *context_ = nullptr;  // nullptr: nobody takes them
    TcpLanding landing_;
    bool batch_arriving_ = false;
    std::vector<std::byte> batch_;  // a batch that arrives in pieces
    // Of an encrypted connection:
    std::unique_ptr<RecordCipher> cipher_;
    std::vector<std::byte> records_;
    std::size_t record_bytes_ = 0;  // of records_ that are here
    std::string why_;
};

}  // namespace vescomm
