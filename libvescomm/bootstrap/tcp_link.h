// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/handshake.h"

namespace vescomm {

// Bytes that wait to be sent, perhaps on many links at once: never copied as a whole.
using Pieces = std::shared_ptr<const std::vector<std::string>>;

// An authenticated connection between rank 0 and another rank: frames in, frames out, in order.
//
// Used only in the thread of its event loop, but for its making. Keeps itself alive while the loop
// waits for it; close() ends that. Nothing is called back after close().
class TcpLink : public std::enable_shared_from_this<TcpLink> {
public:
    struct Callbacks {
        // The payload is valid during the call. The link may be closed in it.
        std::function<void(FrameType, std::string_view payload)> frame;
        // The connection ended, with words that complete "its connection …". Called at most once.
        std::function<void(const std::string &how)> ended;
    };

    TcpLink(EventLoop &loop, Descriptor socket, Session session);
    ~TcpLink();

    // `rest`: bytes that were received already.
    void start(Callbacks callbacks, const std::string &rest);

    void send(FrameType type, std::string payload = {});
    // Sends pieces one behind the other, as data frames. Other frames wait until all are sent.
    void send_data(Pieces pieces);
    // Sends a last word instead of everything that still waits. Frames sent afterwards are dropped.
    void send_last(FrameType type, std::string payload = {});

    // Nothing waits to be sent.
    bool quiet() const;
    // Closes the connection, at once.
    void close();
    // Closes the connection once everything has been sent.
    void finish();
    bool open() const;

    // Latest moments at which bytes came, and went.
    Clock::time_point heard() const { return heard_; }
    Clock::time_point spoke() const { return spoke_; }
    // Does not count against the peer a time in which this process itself stood still.
    void forgive(Clock::duration time) { heard_ += time; }

private:
    struct Wire;

    void wait_to_read();
    void read_some();
    bool take_frames(std::string_view bytes);
    void write_some();
    bool fill_outgoing();
    void end(const std::string &how);

    std::unique_ptr<Wire> wire_;
    Session session_;
    Callbacks callbacks_;
    Clock::time_point heard_ = Clock::now();
    Clock::time_point spoke_ = Clock::now();
};

}  // namespace vescomm
