// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation and per byte. Allocates only for the first batch that arrives in pieces.
#include "transport/tcp_receiver.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "bootstrap/wire.h"
#include "transport/tcp_segment.h"

namespace vescomm::internal {
namespace {

// Bytes read beyond the end of a message: the next header and a few bytes, which are copied once
// more.
constexpr std::size_t read_ahead_bytes = 4 << 10;

// After a message of more bytes only the beginning of the next one is read with its header: from
// here on a second system call costs less than a copy of the rest. Measured: 7 % less time for 32
// KiB, 11 % more for 16 KiB.
constexpr std::uint64_t long_message_bytes = 24 << 10;

ssize_t receive(int socket, iovec *parts, std::size_t count) noexcept {
    // The usual case, also when waiting: recv() is cheaper than recvmsg() with one part.
    if (count == 1) return recv(socket, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
    msghdr what{};
    what.msg_iov = parts;
    what.msg_iovlen = count;
    return recvmsg(socket, &what, MSG_DONTWAIT);
}

}  // namespace

void TcpReceiver::encrypt(const FrameKey &key) {
    cipher_ = std::make_unique<RecordCipher>(RecordCipher::Purpose::open, key);
    records_.resize(2 * max_record_bytes);
    shared_.plain.resize(max_record_bytes);
}

TcpReceiver::State TcpReceiver::fail(const char *why) noexcept {
    try {
        why_ = why;
    } catch (...) {
        why_.clear();
    }
    return State::failed;
}

TcpReceiver::State TcpReceiver::read(int socket, bool &moved) noexcept {
    // A failed communicator must not write memory.
    if (context_ != nullptr && context_->failure.broken()) give_up(*context_);
    return cipher_ ? read_records(socket, moved) : read_plain(socket, moved);
}

TcpReceiver::State TcpReceiver::read_plain(int socket, bool &moved) noexcept {
    iovec parts[2];
    const bool after_long = message_.bytes > long_message_bytes;
    std::size_t count = 0, direct = 0;
    std::size_t wanted = after_long ? read_ahead_bytes : shared_.staging.size();
    if (landing_.to != nullptr) {
        direct = std::min<std::size_t>(left_, segment_bytes);
        parts[count++] = {landing_.to, direct};
        wanted = direct < left_ ? 0 : read_ahead_bytes;
    }
    if (wanted > 0) parts[count++] = {shared_.staging.data(), wanted};
    const ssize_t got = receive(socket, parts, count);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return State::drained;
    if (got < 0) return fail(std::generic_category().message(errno).c_str());
    if (got == 0) return fail("it was closed");
    moved = true;
    auto bytes = static_cast<std::size_t>(got);
    const bool full = bytes == direct + wanted;
    if (direct > 0) {
        const std::size_t landed = std::min(bytes, direct);
        advance(landed);
        bytes -= landed;
    }
    if (!consume(shared_.staging.data(), bytes)) return State::failed;
    return full ? State::more : State::drained;
}

TcpReceiver::State TcpReceiver::read_records(int socket, bool &moved) noexcept {
    iovec part{records_.data() + record_bytes_, records_.size() - record_bytes_};
    const ssize_t got = receive(socket, &part, 1);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return State::drained;
    if (got < 0) return fail(std::generic_category().message(errno).c_str());
    if (got == 0) return fail("it was closed");
    moved = true;
    record_bytes_ += static_cast<std::size_t>(got);
    if (!open_records()) return State::failed;
    return static_cast<std::size_t>(got) == part.iov_len ? State::more : State::drained;
}

// A record: the length of the encrypted bytes, these bytes, and the tag.
bool TcpReceiver::open_records() noexcept {
    std::size_t at = 0;
    while (record_bytes_ - at >= record_head_bytes) {
        const char *head = reinterpret_cast<const char *>(records_.data() + at);
        const auto size = get_number<std::uint32_t>(head);
        if (size == 0 || size > max_record_bytes - record_head_bytes - RecordCipher::tag_bytes)
            return fail("a record has a length that it cannot have") != State::failed;
        const std::size_t whole = record_head_bytes + size + RecordCipher::tag_bytes;
        if (record_bytes_ - at < whole) break;
        if (!cipher_->open({head, record_head_bytes}, records_.data() + at + record_head_bytes,
                           size, shared_.plain.data()))
            return fail("a record does not decrypt: bytes were changed on the way") !=
                   State::failed;
        if (!consume(shared_.plain.data(), size)) return false;
        at += whole;
    }
    record_bytes_ -= at;
    if (at > 0) std::memmove(records_.data(), records_.data() + at, record_bytes_);
    return true;
}

// Handles bytes in the order in which they arrived. Returns false if they are invalid.
bool TcpReceiver::consume(const std::byte *bytes, std::size_t size) noexcept {
    while (size > 0) {
        if (left_ > 0) {
            const std::size_t some = std::min<std::size_t>(left_, size);
            if (landing_.to != nullptr) std::memcpy(landing_.to, bytes, some);
            advance(some);
            bytes += some;
            size -= some;
            continue;
        }
        const std::size_t some = std::min(sizeof message_ - header_bytes_, size);
        std::memcpy(reinterpret_cast<std::byte *>(&message_) + header_bytes_, bytes, some);
        header_bytes_ += some;
        bytes += some;
        size -= some;
        if (header_bytes_ < sizeof message_) return true;
        header_bytes_ = 0;
        std::size_t taken = size;
        if (const char *why = begin(bytes, taken)) return fail(why) != State::failed;
        bytes += taken;
        size -= taken;
    }
    return true;
}

// The header is complete, and `size` bytes after it have arrived. Consumes the whole message if
// they contain all of it, and no byte otherwise.
const char *TcpReceiver::begin(const std::byte *bytes, std::size_t &size) noexcept {
    if (const char *why = check_message(message_)) return why;
    const bool whole = message_.bytes <= size;
    size = whole ? message_.bytes : 0;
    left_ = whole ? 0 : message_.bytes;
    landing_ = {};
    batch_arriving_ = false;
    // Null: this rank has stopped the communicator, or the peer is not in it.
    context_ = shared_.find(message_.context);
    const int peer = context_ == nullptr ? -1 : context_->rank_of(process_);
    if (peer < 0) {
        context_ = nullptr;
        return nullptr;
    }
    if (message_.kind == TcpKind::goodbye) {
        context_->left[static_cast<std::size_t>(peer)] = true;
    } else if (whole) {
        context_->inbox.receive(peer, message_, bytes);
        if (context_->inbox.take_news()) shared_.note(*context_);
    } else if (message_.kind == TcpKind::batch) {
        try {
            batch_.resize(message_.bytes);
            landing_.to = batch_.data();
            batch_arriving_ = true;
        } catch (...) {
            context_->inbox.refuse(peer, "there is no memory left for its parts");
        }
    } else {
        landing_ = context_->inbox.begin(peer, message_);
    }
    if (whole) context_ = nullptr;
    return nullptr;
}

void TcpReceiver::advance(std::size_t bytes) noexcept {
    left_ -= bytes;
    if (landing_.to != nullptr) landing_.to += bytes;
    if (left_ == 0) finish();
}

void TcpReceiver::finish() noexcept {
    if (context_ == nullptr) return;
    const int peer = context_->rank_of(process_);
    if (batch_arriving_) context_->inbox.receive(peer, message_, batch_.data());
    else context_->inbox.end(peer, message_, landing_);
    if (context_->inbox.take_news()) shared_.note(*context_);
    landing_ = {};
    context_ = nullptr;
}

void TcpReceiver::give_up(const TcpContext &context) noexcept {
    if (context_ != &context) return;
    if (left_ > 0) context_->inbox.give_up(landing_);
    landing_ = {};
    context_ = nullptr;
}

}  // namespace vescomm::internal
