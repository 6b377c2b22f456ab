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

namespace vescomm {

// The operating system as the control plane sees it: a clock, timers, and byte streams.
// os_network.h is the real one; tests/bootstrap/simulated_network.h is one of simulated time, in
// which messages are late, connections break, and processes stop.
//
// Everything runs in one thread, the network's: every method but Network::post() is called there,
// and so is every callback. A callback may destroy the object that calls it.

// A connected stream of bytes. Destroying it closes it at once and calls nothing any more.
class Stream {
public:
    struct Events {
        // Bytes have arrived; valid during the call.
        std::function<void(std::string_view)> bytes;
        // The connection ended, with words that complete "its connection ...". Called at most once.
        std::function<void(const std::string &how)> ended;
        // The operating system has taken everything that was written.
        std::function<void()> drained;
    };

    virtual ~Stream() = default;

    // Begins to read. Called again, it hands the stream to another owner's callbacks.
    virtual void start(Events events) = 0;
    // Queues bytes; never blocks. After the connection has ended they are dropped.
    virtual void write(std::string_view bytes) = 0;
    virtual bool drained() const = 0;

    // Both ends, for sentences and for listeners on the same interface: "1.2.3.4:567".
    virtual std::string peer() const = 0;
    virtual TcpAddress local() const = 0;
    // No byte is lost to a peer whose machine has vanished for longer than this: the connection
    // ends instead.
    virtual void limit_silence(double seconds) = 0;

    // Streams within a machine also carry descriptors, each with a byte of its own.
    virtual void write_descriptor(int descriptor) = 0;
    // The descriptor that came with the bytes of the present call, if any.
    virtual Descriptor take_descriptor() = 0;
    // Whether the other end is a process of the same user of this machine.
    virtual bool same_user() const = 0;
};

// Destroying it cancels the call.
class Timer {
public:
    virtual ~Timer() = default;
};

// An attempt to connect. Destroying it gives up.
class Attempt {
public:
    virtual ~Attempt() = default;
};

// Accepts connections until it is destroyed.
class Listener {
public:
    virtual ~Listener() = default;
    virtual TcpAddress address() const = 0;
    // Accepting failed for want of descriptors, until something is closed: try again now.
    virtual bool starved() const = 0;
    virtual void retry() = 0;
};

class Network {
public:
    using Accepted = std::function<void(std::unique_ptr<Stream>)>;
    // A stream, or nullptr and the reason.
    using Connected = std::function<void(std::unique_ptr<Stream>, const std::string &why)>;

    virtual ~Network() = default;

    virtual Clock::time_point now() const = 0;
    // Runs a function in the network's thread, soon. From any thread.
    virtual void post(std::function<void()> function) = 0;
    virtual std::unique_ptr<Timer> at(Clock::time_point when, std::function<void()> function) = 0;

    // Connects to a name or a numeric address; `done` is called once, later.
    virtual std::unique_ptr<Attempt> connect(const TcpAddress &address, Connected done) = 0;
    // Listens as listen_on() says. Throws Error.
    virtual std::unique_ptr<Listener> listen(const TcpAddress &address, Accepted accepted) = 0;
    // Uses a socket that listens already, of which it takes a copy. Throws Error.
    virtual std::unique_ptr<Listener> listen_with(int descriptor, Accepted accepted) = 0;

    // The same within this machine: by a name without an entry in any file system.
    virtual std::unique_ptr<Attempt> connect_local(const std::string &name, Connected done) = 0;
    virtual std::unique_ptr<Listener> listen_local(const std::string &name, Accepted accepted) = 0;
};

}  // namespace vescomm
