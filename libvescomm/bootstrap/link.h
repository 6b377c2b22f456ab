// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/group_id.h"
#include "bootstrap/handshake.h"
#include "bootstrap/network.h"

namespace vescomm::internal {

// Bytes queued for sending, possibly on many links at once; never copied as a whole.
using Pieces = std::shared_ptr<const std::vector<std::string>>;

// An authenticated connection between two processes that carries frames in order.
//
// Used in the network's thread only. Destroying it closes the connection at once; no callback runs
// afterwards.
class Link {
public:
    struct Events {
        // A frame has arrived. The payload is valid during the call; the call may destroy the link.
        std::function<void(FrameType, std::string_view payload)> frame;
        // The connection ended, with words that complete "its connection ...". Called at most once.
        std::function<void(const std::string &how)> ended;
    };

    Link(Network &network, std::unique_ptr<Stream> stream, SessionKeys keys);
    ~Link();
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;

    // `rest`: bytes received before the link was made.
    void start(Events events, const std::string &rest);

    void send(FrameType type, std::string payload = {});
    // Sends pieces in order, as data frames of a group. Other frames wait until all pieces are
    // sent.
    void send_data(const GroupId &group, Pieces pieces);

    // The operating system has taken all bytes.
    bool quiet() const;
    void close();
    // Closes the connection after all queued bytes have been sent.
    void finish();
    bool open() const { return stream_ != nullptr; }
    // The underlying stream; valid while open().
    Stream &stream() { return *stream_; }

    // The latest times at which bytes were received and sent.
    Clock::time_point received_at() const { return received_at_; }
    Clock::time_point sent_at() const { return sent_at_; }
    // Excludes from the peer's silence a time in which this process itself did not run.
    void forgive(Clock::duration time) { received_at_ += time; }

private:
    // Queued for encoding: one frame, or the rest of a list of pieces.
    struct Waiting {
        FrameType type = FrameType::data;
        std::string payload;
        GroupId group;
        Pieces pieces;
        std::size_t piece = 0;
        std::size_t offset = 0;
    };

    static bool cut_frame(Waiting &waiting, std::string &payload);
    void take_frames(std::string_view bytes);
    void send_more();
    void end(const std::string &how);

    Network &network_;
    std::unique_ptr<Stream> stream_;
    SessionKeys keys_;
    std::shared_ptr<const Events> events_;
    std::deque<Waiting> waiting_;
    bool finishing_ = false;
    Clock::time_point received_at_;
    Clock::time_point sent_at_;
    // False once the link is destroyed; checked by callbacks.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm::internal
