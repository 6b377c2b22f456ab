// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation. No allocation once the pool is warm; one system call per segment.
#include "transport/tcp_sender.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "bootstrap/wire.h"
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
    cipher_ = std::make_unique<RecordCipher>(RecordCipher::Purpose::seal, key);
    record_.resize(max_record_bytes);
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
        while (active_ && write() > 0) {
        }
        if (!active_ || failed_) return end(put);
        put_ = take(queue, put, uses);
        if (put_ != nullptr) put_->sent = put.bytes;
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
    TcpPut *before = queue.first != nullptr ? queue.last : put_;
    if (before != nullptr && before->context == queue.context)
        signal.put.pending = std::exchange(before->put.pending, nullptr);
}

// Returns nullptr if there is no memory; the connection has then failed.
TcpPut *TcpSender::take(TcpQueue &queue, const Put &put, std::uint32_t *uses) noexcept {
    TcpPut *taken = hub_.puts.take();
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
    if (failed_) return hub_.end(put);
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
    TcpPut *goodbye = hub_.puts.take();
    if (goodbye == nullptr) return fail("there is no memory left to send");
    goodbye->clear();
    goodbye->context_id = context;
    enqueue(goodbyes_, goodbye);
}

// ---- messages ----

void TcpSender::load(const Put &put, std::uint32_t context, bool batch, const std::byte *from,
                     std::uint64_t offset, std::uint64_t bytes, bool last) noexcept {
    message_ = {};
    message_.kind = batch ? TcpKind::batch : last ? TcpKind::put : TcpKind::piece;
    message_.context = context;
    message_.memory = put.memory;
    message_.signal = put.signal;
    message_.signature = last ? put.signature : 0;
    message_.tag = put.tag;
    message_.credit_flag = put.credit_flag;
    message_.offset = offset;
    message_.bytes = bytes;
    message_.value = put.value;
    message_.credit = put.credit;
    bytes_ = from;
    sent_ = 0;
    active_ = true;
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
    load(put.put, put.context_id, put.is_batch(), put.from() + put.sent,
         put.is_batch() ? 0 : put.put.offset + put.sent, bytes, last);
    if (put.context == nullptr) {
        message_ = {};
        message_.kind = TcpKind::goodbye;
        message_.context = put.context_id;
    }
    put.sent += bytes;
    if (last) {
        queue.first = put.next;
        put_ = &put;
    }
    if (queue.first != nullptr) wait_for_slot(queue);
    return true;
}

bool TcpSender::pump() noexcept {
    bool moved = false;
    for (std::size_t sent = 0; sent < segment_bytes && !failed_ && !blocked_;) {
        if (!active_ && !next_message()) break;
        const std::size_t some = write();
        moved |= some > 0;
        sent += some;
    }
    return moved;
}

// Hands over at most one segment. Returns 0 if the kernel takes nothing now or the connection
// failed.
std::size_t TcpSender::write() noexcept {
    const std::size_t sent = cipher_ ? write_record() : write_plain();
    sent_ += sent;
    if (sent > 0 && left() == 0) finish_message();
    return sent;
}

std::size_t TcpSender::write_plain() noexcept {
    iovec parts[2];
    std::size_t count = 0, space = segment_bytes;
    std::size_t at = sent_;
    if (at < sizeof message_) {
        const std::size_t bytes = sizeof message_ - at;
        parts[count++] = {reinterpret_cast<std::byte *>(&message_) + at, bytes};
        space -= bytes;
        at = sizeof message_;
    }
    at -= sizeof message_;
    if (at < message_.bytes)
        parts[count++] = {const_cast<std::byte *>(bytes_) + at,
                          std::min<std::size_t>(space, message_.bytes - at)};
    const ssize_t sent = send_parts(socket_, parts, count);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN) blocked_ = true;
    else if (errno != EINTR) fail(std::generic_category().message(errno).c_str());
    return 0;
}

// The bytes of a record count as sent once the kernel has taken the whole record.
std::size_t TcpSender::write_record() noexcept {
    if (record_bytes_ == 0) {
        constexpr std::size_t max = max_record_bytes - record_head_bytes - RecordCipher::tag_bytes;
        record_holds_ = std::min<std::size_t>(left(), max);
        const std::size_t of_header =
            sent_ < sizeof message_ ? std::min(sizeof message_ - sent_, record_holds_) : 0;
        const std::size_t from = sent_ < sizeof message_ ? 0 : sent_ - sizeof message_;
        std::string head;
        put_number(head, static_cast<std::uint32_t>(record_holds_));
        std::memcpy(record_.data(), head.data(), record_head_bytes);
        if (!cipher_->seal(head, reinterpret_cast<const std::byte *>(&message_) + sent_, of_header,
                           bytes_ + from, record_holds_ - of_header,
                           record_.data() + record_head_bytes)) {
            fail("libcrypto cannot encrypt");
            return 0;
        }
        record_bytes_ = record_head_bytes + record_holds_ + RecordCipher::tag_bytes;
        record_sent_ = 0;
    }
    while (record_sent_ < record_bytes_) {
        const ssize_t sent = ::send(socket_, record_.data() + record_sent_,
                                    record_bytes_ - record_sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent > 0) {
            record_sent_ += static_cast<std::size_t>(sent);
        } else {
            if (errno == EAGAIN) blocked_ = true;
            else if (errno != EINTR) fail(std::generic_category().message(errno).c_str());
            return 0;
        }
    }
    record_bytes_ = 0;
    return record_holds_;
}

void TcpSender::finish_message() noexcept {
    active_ = false;
    bytes_ = nullptr;
    if (TcpPut *put = std::exchange(put_, nullptr)) hub_.end(put);
    if (!owned_.empty()) std::vector<std::byte>().swap(owned_);
}

// ---- the end ----

// The rest of the message under way must be sent, or the peer could not find the next header. It is
// copied, so that its owner can take back the source.
void TcpSender::own_message() noexcept {
    try {
        owned_.assign(bytes_, bytes_ + message_.bytes);
        bytes_ = owned_.data();
    } catch (...) {
        fail("there is no memory left to send");
    }
}

void TcpSender::drop(TcpQueue &queue) noexcept {
    if (active_ && message_.context == queue.context->id && message_.kind != TcpKind::goodbye) {
        if (message_.bytes > 0) own_message();
        if (TcpPut *put = std::exchange(put_, nullptr)) hub_.end(put);
    }
    if (queue.waiting) {
        TcpQueue *before = nullptr;
        for (TcpQueue *at = first_; at != &queue; at = at->next) before = at;
        (before == nullptr ? first_ : before->next) = queue.next;
        if (last_ == &queue) last_ = before;
        queue.waiting = false;
    }
    if (TcpPut *open = std::exchange(queue.open, nullptr)) hub_.end(open);
    while (TcpPut *put = queue.first) {
        queue.first = put->next;
        hub_.end(put);
    }
}

void TcpSender::close() noexcept {
    failed_ = true;
    active_ = false;
    if (TcpPut *put = std::exchange(put_, nullptr)) hub_.end(put);
    while (TcpQueue *queue = first_) {
        first_ = queue->next;
        queue->waiting = false;
        while (TcpPut *put = queue->first) {
            queue->first = put->next;
            hub_.end(put);
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
