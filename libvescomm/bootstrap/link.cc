// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/link.h"

#include <algorithm>

namespace vescomm::internal {

namespace {

// Frames are encoded when the operating system has taken the previous ones, about this many bytes
// at a time: queued bytes stay in the pieces that all links share.
constexpr std::size_t batch_bytes = std::size_t{64} << 10;

}  // namespace

Link::Link(Network &network, std::unique_ptr<Stream> stream, SessionKeys keys)
    : network_(network),
      stream_(std::move(stream)),
      keys_(std::move(keys)),
      received_at_(network.now()),
      sent_at_(network.now()) {}

Link::~Link() {
    *alive_ = false;
}

void Link::start(Events events, const std::string &rest) {
    events_ = std::make_shared<const Events>(std::move(events));
    const auto alive = alive_;
    stream_->start({[this](std::string_view bytes) {
                        received_at_ = network_.now();
                        take_frames(bytes);
                    },
                    [this](const std::string &how) { end(how); }, [this] { send_more(); }});
    if (*alive && open()) take_frames(rest);
}

void Link::take_frames(std::string_view bytes) {
    // Copies for the duration of the call, which may destroy the link.
    const auto alive = alive_;
    const auto events = events_;
    while (*alive && open()) {
        switch (keys_.decoder.read(bytes)) {
            case FrameDecoder::State::incomplete:
                return;
            case FrameDecoder::State::broken:
                return end(std::string("carried ") + describe(keys_.decoder.fault()));
            case FrameDecoder::State::complete:
                events->frame(keys_.decoder.type(), keys_.decoder.payload());
                break;
        }
    }
}

void Link::send(FrameType type, std::string payload) {
    if (!open() || finishing_) return;
    waiting_.push_back(
        {.type = type, .payload = std::move(payload), .group = {}, .pieces = nullptr});
    if (stream_->drained()) send_more();
}

void Link::send_data(const GroupId &group, Pieces pieces) {
    if (!open() || finishing_) return;
    waiting_.push_back(
        {.type = FrameType::data, .payload = {}, .group = group, .pieces = std::move(pieces)});
    if (stream_->drained()) send_more();
}

// Moves up to one frame's payload out of the pieces. Returns true while more are left.
bool Link::cut_frame(Waiting &waiting, std::string &payload) {
    const auto &pieces = *waiting.pieces;
    while (waiting.piece < pieces.size() && payload.size() < max_payload_bytes) {
        const std::string &piece = pieces[waiting.piece];
        const std::size_t count =
            std::min(piece.size() - waiting.offset, max_payload_bytes - payload.size());
        payload.append(piece, waiting.offset, count);
        waiting.offset += count;
        if (waiting.offset < piece.size()) continue;
        ++waiting.piece;
        waiting.offset = 0;
    }
    return waiting.piece < pieces.size();
}

void Link::send_more() {
    std::string frames;
    while (open() && stream_->drained() && !waiting_.empty()) {
        frames.clear();
        while (!waiting_.empty() && frames.size() < batch_bytes) {
            Waiting &first = waiting_.front();
            bool more = false;
            if (first.pieces != nullptr) {
                std::string payload;
                put_group(payload, first.group);
                const std::size_t head = payload.size();
                more = cut_frame(first, payload);
                if (payload.size() > head) keys_.encoder.append(frames, FrameType::data, payload);
            } else {
                keys_.encoder.append(frames, first.type, first.payload);
            }
            if (!more) waiting_.pop_front();
        }
        sent_at_ = network_.now();
        stream_->write(frames);
    }
    if (finishing_ && open() && quiet()) close();
}

bool Link::quiet() const {
    return waiting_.empty() && (stream_ == nullptr || stream_->drained());
}

void Link::close() {
    stream_.reset();
    waiting_.clear();
}

void Link::finish() {
    if (!open()) return;
    if (quiet()) return close();
    finishing_ = true;
}

void Link::end(const std::string &how) {
    if (!open()) return;
    const auto events = events_;
    close();
    events->ended(how);
}

}  // namespace vescomm::internal
