// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <deque>
#include <system_error>

namespace vescomm {

namespace {

constexpr std::size_t read_bytes = std::size_t{64} << 10;

std::string broke(int code) {
    return "broke: " + std::generic_category().message(code);
}

// What still has to become frames: one frame, or the rest of a list of pieces.
struct Waiting {
    FrameType type = FrameType::data;
    std::string payload;
    Pieces pieces;
    std::size_t piece = 0;
    std::size_t offset = 0;
};

// Moves up to one frame's worth of bytes out of the pieces. True while more are left.
bool cut_frame(Waiting &waiting, std::string &payload) {
    const auto &pieces = *waiting.pieces;
    while (waiting.piece < pieces.size() && payload.size() < largest_payload_bytes) {
        const std::string &piece = pieces[waiting.piece];
        const std::size_t count =
            std::min(piece.size() - waiting.offset, largest_payload_bytes - payload.size());
        payload.append(piece, waiting.offset, count);
        waiting.offset += count;
        if (waiting.offset < piece.size()) continue;
        ++waiting.piece;
        waiting.offset = 0;
    }
    return waiting.piece < pieces.size();
}

}  // namespace

struct TcpLink::Wire {
    Wire(EventLoop &loop, Descriptor descriptor)
        : owner(std::move(descriptor)), socket(loop.context(), owner.get()) {}
    ~Wire() { close(); }

    void close() {
        if (!owner.open()) return;
        socket.release();
        owner = Descriptor();
    }

    void drop_everything() {
        waiting.clear();
        outgoing.clear();
        sent = 0;
        last = true;
    }

    Descriptor owner;
    asio::posix::stream_descriptor socket;  // borrows it, to wait
    std::deque<Waiting> waiting;
    std::string outgoing;  // whole frames; the first `sent` bytes are on their way
    std::size_t sent = 0;
    bool writing = false;  // the loop waits until the socket takes more
    bool last = false;  // nothing may be added any more
    bool finishing = false;  // close when nothing waits
};

TcpLink::TcpLink(EventLoop &loop, Descriptor socket, Session session)
    : wire_(std::make_unique<Wire>(loop, std::move(socket))), session_(std::move(session)) {}

TcpLink::~TcpLink() = default;

void TcpLink::start(Callbacks callbacks, const std::string &rest) {
    const auto self = shared_from_this();
    callbacks_ = std::move(callbacks);
    if (take_frames(rest)) wait_to_read();
}

void TcpLink::wait_to_read() {
    wire_->socket.async_wait(asio::posix::descriptor_base::wait_read,
                             [self = shared_from_this()](const std::error_code &error) {
                                 if (!error) self->read_some();
                             });
}

void TcpLink::read_some() {
    // One buffer for all links of the thread: each call empties it.
    thread_local std::array<char, read_bytes> buffer;
    if (!open()) return;
    const ssize_t got = recv(wire_->owner.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return end("closed");
    if (got < 0 && errno != EAGAIN && errno != EINTR) return end(broke(errno));
    if (got > 0) {
        heard_ = Clock::now();
        if (!take_frames({buffer.data(), static_cast<std::size_t>(got)})) return;
    }
    wait_to_read();
}

// False when the link is closed.
bool TcpLink::take_frames(std::string_view bytes) {
    while (open()) {
        switch (session_.decoder.read(bytes)) {
            case FrameDecoder::State::incomplete:
                return true;
            case FrameDecoder::State::broken:
                end(std::string("carried ") + describe(session_.decoder.fault()));
                return false;
            case FrameDecoder::State::complete:
                callbacks_.frame(session_.decoder.type(), session_.decoder.payload());
                break;
        }
    }
    return false;
}

void TcpLink::send(FrameType type, std::string payload) {
    if (!open() || wire_->last) return;
    wire_->waiting.push_back({type, std::move(payload), nullptr, 0, 0});
    if (!wire_->writing) write_some();
}

void TcpLink::send_data(Pieces pieces) {
    if (!open() || wire_->last) return;
    wire_->waiting.push_back({FrameType::data, {}, std::move(pieces), 0, 0});
    if (!wire_->writing) write_some();
}

void TcpLink::send_last(FrameType type, std::string payload) {
    if (!open() || wire_->last) return;
    wire_->waiting.clear();
    send(type, std::move(payload));
    if (open()) wire_->last = true;
}

// Turns what waits into frames, a few at a time. False when nothing is left.
bool TcpLink::fill_outgoing() {
    if (wire_->sent < wire_->outgoing.size()) return true;
    wire_->outgoing.clear();
    wire_->sent = 0;
    while (!wire_->waiting.empty() && wire_->outgoing.size() < read_bytes) {
        Waiting &first = wire_->waiting.front();
        bool more = false;
        if (first.pieces != nullptr) {
            std::string payload;
            more = cut_frame(first, payload);
            if (!payload.empty())
                session_.encoder.append(wire_->outgoing, FrameType::data, payload);
        } else {
            session_.encoder.append(wire_->outgoing, first.type, first.payload);
        }
        if (!more) wire_->waiting.pop_front();
    }
    return !wire_->outgoing.empty();
}

void TcpLink::write_some() {
    while (fill_outgoing()) {
        const std::string &bytes = wire_->outgoing;
        const ssize_t sent = ::send(wire_->owner.get(), bytes.data() + wire_->sent,
                                    bytes.size() - wire_->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            wire_->sent += static_cast<std::size_t>(sent);
            spoke_ = Clock::now();
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) {
            // Reading finds the same error, after whatever the peer said before.
            wire_->drop_everything();
            break;
        }
        wire_->writing = true;
        wire_->socket.async_wait(asio::posix::descriptor_base::wait_write,
                                 [self = shared_from_this()](const std::error_code &error) {
                                     if (error || !self->open()) return;
                                     self->wire_->writing = false;
                                     self->write_some();
                                 });
        return;
    }
    if (wire_->finishing) close();
}

bool TcpLink::quiet() const {
    return wire_->waiting.empty() && wire_->sent == wire_->outgoing.size();
}

bool TcpLink::open() const {
    return wire_->owner.open();
}

void TcpLink::close() {
    wire_->close();
    wire_->drop_everything();
}

void TcpLink::finish() {
    if (!open()) return;
    if (quiet()) return close();
    wire_->finishing = true;
}

void TcpLink::end(const std::string &how) {
    if (!open()) return;
    close();
    callbacks_.ended(how);
}

}  // namespace vescomm
