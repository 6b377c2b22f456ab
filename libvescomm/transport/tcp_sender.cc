// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation. No allocation once the free list is warm; one system call per segment.
#include "transport/tcp_sender.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "transport/eager_flow.h"
#include "transport/tcp_segment.h"

namespace vescomm::internal {
namespace {

// Bytes of a put that are handed over without interruption, if the kernel takes them: this
// completes a short put sooner. After each further segment of a longer put, incoming bytes are
// read.
constexpr std::uint64_t at_once_bytes = 2 << 20;

// Messages of up to this many bytes are copied into one buffer, which is cheaper than two parts.
constexpr std::size_t max_joined_bytes = 4 << 10;

ssize_t send_parts(int socket, const iovec *parts, std::size_t count) noexcept {
    constexpr int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    if (count == 1) return ::send(socket, parts[0].iov_base, parts[0].iov_len, flags);
    if (parts[0].iov_len + parts[1].iov_len <= max_joined_bytes) {
        std::byte joined[max_joined_bytes];
        std::memcpy(joined, parts[0].iov_base, parts[0].iov_len);
        std::memcpy(joined + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
        return ::send(socket, joined, parts[0].iov_len + parts[1].iov_len, flags);
    }
    msghdr what{};
    what.msg_iov = const_cast<iovec *>(parts);
    what.msg_iovlen = count;
    return sendmsg(socket, &what, flags);
}

}  // namespace

void TcpSender::encrypt(const FrameKey &key) {
    records_.emplace(key);
}

void TcpSender::end(const Put &put) noexcept {
    if (put.pending != nullptr) put.pending->fetch_sub(1, std::memory_order_release);
}

// ---- puts ----

void TcpSender::send(TcpQueue &queue, const Put &put, std::uint32_t *uses) noexcept {
    if (failed_) return end(put);
    if (join_batch(queue, put, uses)) return;
    if (!waiting() && put.bytes <= max_message_bytes) {
        // The usual case: from the memory of the caller to the kernel, without a queue.
        load(put, queue.context->id, false, put.from, put.offset, put.bytes, true);
        while (outgoing_.active() && write() > 0) {
        }
        if (!outgoing_.active() || failed_) return end(put);
        TcpPut *taken = take(queue, put, uses);
        if (taken != nullptr) taken->sent = put.bytes;
        outgoing_.set_put(taken);
        return;
    }
    TcpPut *taken = take(queue, put, uses);
    if (taken == nullptr) return;
    follow(queue, *taken);
    enqueue(queue, taken);
}

// A signal after a put of the same communicator: the put ends when the signal has left. Its rank
// may stop making progress as soon as its puts have ended.
void TcpSender::follow(TcpQueue &queue, TcpPut &signal) noexcept {
    if (signal.put.bytes > 0 || signal.put.pending != nullptr) return;
    TcpPut *before = queue.first != nullptr ? queue.last : outgoing_.put();
    if (before != nullptr && before->context == queue.context)
        signal.put.pending = std::exchange(before->put.pending, nullptr);
}

// Returns nullptr if there is no memory; the connection has then failed.
TcpPut *TcpSender::take(TcpQueue &queue, const Put &put, std::uint32_t *uses) noexcept {
    TcpPut *taken = shared_.puts.take();
    if (taken == nullptr) {
        end(put);
        fail("there is no memory left to send");
        return nullptr;
    }
    taken->clear();
    taken->next = nullptr;
    taken->context = queue.context;
    taken->context_id = queue.context->id;
    taken->put = put;
    taken->uses = uses;
    if (uses != nullptr) ++*uses;
    return taken;
}

// Returns true if the put is small and has become part of a batch.
bool TcpSender::join_batch(TcpQueue &queue, const Put &part, std::uint32_t *uses) noexcept {
    const auto close_batch = [&] {
        if (queue.open != nullptr) enqueue(queue, std::exchange(queue.open, nullptr));
    };
    const bool last = part.value != 0;
    if (part.bytes > max_part_bytes || part.bytes == 0 || (last && queue.open == nullptr)) {
        close_batch();
        return false;
    }
    if (queue.open != nullptr &&
        (queue.open->put.memory != part.memory || queue.open->put.credit != part.credit ||
         queue.open->put.credit_flag != part.credit_flag ||
         queue.open->batch.size() + part.bytes > max_batch_bytes - sizeof(BatchPart))) {
        close_batch();
        if (last) return false;
    }
    if (queue.open == nullptr) {
        queue.open = take(queue, part, uses);
        if (queue.open == nullptr) return true;
        queue.open->put.pending = nullptr;
    }
    TcpPut &batch = *queue.open;
    try {
        append_part(batch.batch, part.offset, part.from, part.bytes);
    } catch (...) {
        end(part);
        fail("there is no memory left to send");
        return true;
    }
    batch.put.signal = part.signal;
    batch.put.value = part.value;
    batch.put.signature = part.signature;
    batch.put.tag = part.tag;
    // The source of a part may be reused at once. The last part ends when the batch ends.
    if (last) batch.put.pending = part.pending;
    else end(part);
    if (last) close_batch();
    return true;
}

void TcpSender::enqueue(TcpQueue &queue, TcpPut *put) noexcept {
    if (failed_) return shared_.end(put);
    put->next = nullptr;
    (queue.first == nullptr ? queue.first : queue.last->next) = put;
    queue.last = put;
    if (!queue.waiting) wait_for_slot(queue);
    if (blocked_) return;
    for (std::uint64_t sent = 0; sent < at_once_bytes && pump();) sent += segment_bytes;
}

void TcpSender::wait_for_slot(TcpQueue &queue) noexcept {
    queue.waiting = true;
    queue.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &queue;
    last_ = &queue;
}

void TcpSender::say_goodbye(std::uint32_t context) noexcept {
    if (failed_) return;
    TcpPut *goodbye = shared_.puts.take();
    if (goodbye == nullptr) return fail("there is no memory left to send");
    goodbye->clear();
    goodbye->context_id = context;
    enqueue(goodbyes_, goodbye);
}

// ---- messages ----

void TcpSender::load(const Put &put, std::uint32_t context, bool batch, const std::byte *from,
                     std::uint64_t offset, std::uint64_t bytes, bool last) noexcept {
    TcpMessage &message = outgoing_.begin(from);
    message.kind = message_kind<TcpKind>(put.kind, batch, last);
    message.context = context;
    message.memory = put.memory;
    message.signal = put.signal;
    message.signature = last ? put.signature : 0;
    message.tag = put.tag;
    message.credit_flag = put.credit_flag;
    message.offset = offset;
    message.bytes = bytes;
    message.value = put.value;
    message.credit = put.credit;
}

// Takes the next message from the queue that is next in round-robin order.
bool TcpSender::next_message() noexcept {
    if (first_ == nullptr) return false;
    TcpQueue &queue = *first_;
    first_ = queue.next;
    if (first_ == nullptr) last_ = nullptr;
    queue.waiting = false;

    TcpPut &put = *queue.first;
    const std::uint64_t bytes = std::min(put.bytes() - put.sent, max_message_bytes);
    const bool last = put.sent + bytes == put.bytes();
    if (put.context == nullptr) {
        TcpMessage &message = outgoing_.begin(nullptr);
        message.kind = TcpKind::goodbye;
        message.context = put.context_id;
    } else {
        load(put.put, put.context_id, put.is_batch(), put.from() + put.sent,
             put.is_batch() ? 0 : put.put.offset + put.sent, bytes, last);
    }
    put.sent += bytes;
    if (last) {
        queue.first = put.next;
        outgoing_.set_put(&put);
    }
    if (queue.first != nullptr) wait_for_slot(queue);
    return true;
}

bool TcpSender::pump() noexcept {
    bool moved = false;
    for (std::size_t sent = 0; sent < segment_bytes && !failed_ && !blocked_;) {
        if (!outgoing_.active() && !next_message()) break;
        const std::size_t some = write();
        moved |= some > 0;
        sent += some;
    }
    return moved;
}

// Hands over at most one segment. Returns 0 if the kernel takes nothing now or the connection
// failed.
std::size_t TcpSender::write() noexcept {
    const std::size_t sent = records_ ? write_record() : write_plain();
    outgoing_.advance(sent);
    if (sent > 0 && outgoing_.left() == 0) finish_message();
    return sent;
}

std::size_t TcpSender::write_plain() noexcept {
    iovec parts[2];
    const ssize_t sent = send_parts(socket_, parts, outgoing_.parts(segment_bytes, parts));
    if (sent >= 0) return static_cast<std::size_t>(sent);
    note_error();
    return 0;
}

// The bytes of a record count as sent once the kernel has taken the whole record.
std::size_t TcpSender::write_record() noexcept {
    if (!records_->under_way()) {
        iovec parts[2];
        const std::size_t count = outgoing_.parts(TcpRecordWriter::max_bytes, parts);
        if (!records_->seal({parts, count})) {
            fail("libcrypto cannot encrypt");
            return 0;
        }
    }
    const std::size_t sent = records_->send(socket_);
    if (sent == 0) note_error();
    return sent;
}

// The kernel has not taken all bytes, for the reason in errno.
void TcpSender::note_error() noexcept {
    if (errno == EAGAIN) blocked_ = true;
    else if (errno != EINTR) fail(std::generic_category().message(errno).c_str());
}

void TcpSender::finish_message() noexcept {
    TcpPut *put = outgoing_.take_put();
    outgoing_.clear();
    if (put != nullptr) shared_.end(put);
}

// ---- the end ----

void TcpSender::drop(TcpQueue &queue) noexcept {
    if (outgoing_.is_put_of(queue.context->id)) {
        try {
            outgoing_.own_bytes();
        } catch (...) {
            fail("there is no memory left to send");
        }
        if (TcpPut *put = outgoing_.take_put()) shared_.end(put);
    }
    if (queue.waiting) {
        TcpQueue *before = nullptr;
        for (TcpQueue *at = first_; at != &queue; at = at->next) before = at;
        (before == nullptr ? first_ : before->next) = queue.next;
        if (last_ == &queue) last_ = before;
        queue.waiting = false;
    }
    if (TcpPut *open = std::exchange(queue.open, nullptr)) shared_.end(open);
    while (TcpPut *put = queue.first) {
        queue.first = put->next;
        shared_.end(put);
    }
}

void TcpSender::close() noexcept {
    failed_ = true;
    if (TcpPut *put = outgoing_.take_put()) shared_.end(put);
    outgoing_.clear();
    while (TcpQueue *queue = first_) {
        first_ = queue->next;
        queue->waiting = false;
        while (TcpPut *put = queue->first) {
            queue->first = put->next;
            shared_.end(put);
        }
    }
    last_ = nullptr;
}

void TcpSender::fail(const char *why) noexcept {
    if (failed_) return;
    failed_ = true;
    try {
        why_ = why;
    } catch (...) {
        why_.clear();
    }
}

}  // namespace vescomm::internal
