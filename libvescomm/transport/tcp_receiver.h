// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp_crypto.h"
#include "transport/tcp_shared.h"
#include "transport/tcp_wire.h"

namespace vescomm::internal {

// Incoming direction of a connection. The bytes of a large put are read directly into the target
// memory; headers, and the bytes read together with them, pass through the staging buffer.
//
//     socket ──┬──► rest of the put that is arriving, in its memory
//              └──► staging ──► header, header, bytes ...
class TcpReceiver {
public:
    enum class State {
        drained,  // nothing more to read now
        more,  // there may be more to read
        failed,  // why() gives the reason; the connection is unusable
    };

    TcpReceiver(TcpShared &shared, int process) : shared_(shared), process_(process) {}
    // Expects encrypted records from now on. Throws.
    void encrypt(const FrameKey &key);

    // Reads once, without waiting. Sets `moved` if anything arrived.
    State read(int socket, bool &moved) noexcept;

    // Drops the rest of a message for this communicator: no byte of its memories is written from
    // now on.
    void give_up(const TcpContext &context) noexcept;

    // True if a message for this communicator has arrived in part.
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

    TcpShared &shared_;
    const int process_;
    // The message that is arriving:
    TcpMessage message_;
    std::size_t header_bytes_ = 0;  // bytes of message_ received so far, while it is incomplete
    std::uint64_t left_ = 0;  // bytes after the header that are still to come
    TcpContext *context_ = nullptr;  // nullptr: the bytes are dropped
    TcpLanding landing_;
    bool batch_arriving_ = false;
    std::vector<std::byte> batch_;  // a batch that arrives in pieces
    // Encrypted connections only:
    std::unique_ptr<RecordCipher> cipher_;
    std::vector<std::byte> records_;
    std::size_t record_bytes_ = 0;  // bytes of records_ received so far
    std::string why_;
};

}  // namespace vescomm::internal
