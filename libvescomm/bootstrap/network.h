// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "bootstrap/tcp_address.h"

namespace vescomm::internal {

// The interface of the control plane to the operating system: a clock, timers, and byte streams.
// os_network.h is the real one. tests/bootstrap/simulated_network.h simulates time, delays
// messages, breaks connections and stops processes.
//
// Everything runs in one thread, the network's thread: every method except Network::post() must be
// called there, and every callback runs there. A callback may destroy the object that calls it.

// A connected stream of bytes. Destroying it closes it at once; no callback runs afterwards.
class Stream {
public:
    struct Events {
        // Bytes have arrived; valid during the call.
        std::function<void(std::string_view)> bytes;
        // The connection ended, with words that complete "its connection ...". Called at most once.
        std::function<void(const std::string &how)> ended;
        // The operating system has taken all written bytes.
        std::function<void()> drained;
    };

    virtual ~Stream() = default;

    // Starts reading. A second call replaces the callbacks, for a new owner.
    virtual void start(Events events) = 0;
    // As start(), but bytes that have arrived already are delivered before it returns, if the
    // network supports that. The callbacks may destroy the stream.
    virtual void start_at_once(Events events) { start(std::move(events)); }
    // Queues bytes; never blocks. Bytes written after the end of the connection are dropped.
    virtual void write(std::string_view bytes) = 0;
    virtual bool drained() const = 0;

    // Addresses of both ends ("1.2.3.4:567"), for sentences and for listeners on the same
    // interface.
    virtual std::string peer() const = 0;
    virtual TcpAddress local() const = 0;
    // Ends the connection when written bytes stay unacknowledged for longer than this, for example
    // because the peer's machine has vanished.
    virtual void limit_silence(double seconds) = 0;

    // Streams within a machine can also carry descriptors, each together with descriptor_byte.
    static constexpr char descriptor_byte = 'd';
    virtual void write_descriptor(int descriptor) = 0;
    // Returns the descriptor that came with the bytes of the current `bytes` call, if any.
    virtual Descriptor take_descriptor() = 0;
    // True if the peer is a process of the same user of this machine.
    virtual bool same_user() const = 0;
};

// True if both ends of a TCP connection are on this machine.
inline bool stays_on_machine(const Stream &stream) {
    const std::string local = stream.local().host;
    return is_loopback(local) || parse_tcp_address(stream.peer(), "a peer").host == local;
}

// A pending call. Destroying it cancels the call.
class Timer {
public:
    virtual ~Timer() = default;
};

// An attempt to connect. Destroying it cancels the attempt.
class Attempt {
public:
    virtual ~Attempt() = default;
};

// Accepts connections until it is destroyed.
class Listener {
public:
    virtual ~Listener() = default;
    virtual TcpAddress address() const = 0;
    // A listener on all interfaces: listens at the numeric address of one from now on. Its port
    // stays taken meanwhile. Returns false if that is not possible; it then listens as before.
    virtual bool narrow(const std::string &host) = 0;
    // starved(): accepting fails because the process has no free descriptor. retry() tries again.
    virtual bool starved() const = 0;
    virtual void retry() = 0;
};

class Network {
public:
    using Accepted = std::function<void(std::unique_ptr<Stream>)>;
    // Called with a stream, or with nullptr and the reason.
    using Connected = std::function<void(std::unique_ptr<Stream>, const std::string &why)>;

    virtual ~Network() = default;

    virtual Clock::time_point now() const = 0;
    // Queues a function for the network's thread. May be called from any thread.
    virtual void post(std::function<void()> function) = 0;
    virtual std::unique_ptr<Timer> at(Clock::time_point when, std::function<void()> function) = 0;

    // Connects to a name or a numeric address; `done` is called once, later.
    virtual std::unique_ptr<Attempt> connect(const TcpAddress &address, Connected done) = 0;
    // Listens as listen_on() describes. Throws Error.
    virtual std::unique_ptr<Listener> listen(const TcpAddress &address, Accepted accepted) = 0;
    // Listens with a copy of a socket that listens already. Throws Error.
    virtual std::unique_ptr<Listener> listen_with(int descriptor, Accepted accepted) = 0;

    // Connect and listen within this machine, by a name that appears in no file system.
    virtual std::unique_ptr<Attempt> connect_local(const std::string &name, Connected done) = 0;
    virtual std::unique_ptr<Listener> listen_local(const std::string &name, Accepted accepted) = 0;
};

}  // namespace vescomm::internal
