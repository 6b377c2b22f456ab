// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/tcp_outgoing.h"
#include "transport/tcp_record_writer.h"
#include "transport/tcp_shared.h"

namespace vescomm::internal {

// Outgoing direction of a connection. The bytes of a put are handed to the kernel directly from
// their source. Bytes that the kernel does not take wait in the queue of their communicator; the
// queues of a connection are served round-robin, one message each.
class TcpSender {
public:
    TcpSender(TcpShared &shared, int socket) : shared_(shared), socket_(socket) {}
    // Sends encrypted records from now on. Throws.
    void encrypt(const FrameKey &key);

    // Sends a put, or queues it. Small parts wait for the put that follows, to be sent as one
    // message. `uses`: use count of the target memory, incremented while the put waits; nullptr if
    // it has no bytes.
    void send(TcpQueue &queue, const Put &put, std::uint32_t *uses) noexcept;

    // Notifies the peer that a communicator has been stopped here.
    void say_goodbye(std::uint32_t context) noexcept;

    // Hands over queued bytes until the kernel takes no more or one segment has been sent. Returns
    // true if any byte was.
    bool pump() noexcept;

    // Something is queued.
    bool waiting() const noexcept { return outgoing_.active() || first_ != nullptr; }
    // The kernel did not take all bytes; it will once the socket is writable.
    bool blocked() const noexcept { return blocked_; }
    void unblock() noexcept { blocked_ = false; }

    // A message of this communicator is under way, or a goodbye is queued.
    bool owes(std::uint32_t context) const noexcept {
        return outgoing_.is_of(context) || goodbyes_.first != nullptr;
    }

    bool sends_put(std::uint32_t context) const noexcept { return outgoing_.is_put_of(context); }

    // Drops all queued puts of one communicator. Their sources are not read any more.
    void drop(TcpQueue &queue) noexcept;
    // Drops everything, after the connection has ended.
    void close() noexcept;

    bool failed() const noexcept { return failed_; }
    const std::string &why() const { return why_; }

private:
    bool join_batch(TcpQueue &queue, const Put &put, std::uint32_t *uses) noexcept;
    TcpPut *take(TcpQueue &queue, const Put &put, std::uint32_t *uses) noexcept;
    void enqueue(TcpQueue &queue, TcpPut *put) noexcept;
    void follow(TcpQueue &queue, TcpPut &signal) noexcept;
    void wait_for_slot(TcpQueue &queue) noexcept;
    void load(const Put &put, std::uint32_t context, bool batch, const std::byte *from,
              std::uint64_t at, std::uint64_t bytes, bool last) noexcept;
    bool next_message() noexcept;
    std::size_t write() noexcept;
    std::size_t write_plain() noexcept;
    std::size_t write_record() noexcept;
    void finish_message() noexcept;
    void note_error() noexcept;
    void fail(const char *why) noexcept;
    static void end(const Put &put) noexcept;

    TcpShared &shared_;
    const int socket_;
    TcpQueue *first_ = nullptr;  // the queues that wait, in round-robin order
    TcpQueue *last_ = nullptr;
    TcpQueue goodbyes_;
    TcpOutgoing outgoing_;
    std::optional<TcpRecordWriter> records_;  // encrypted connections
    bool blocked_ = false;
    bool failed_ = false;
    std::string why_;
};

}  // namespace vescomm::internal
