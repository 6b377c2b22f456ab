// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string_view>

// Whoever includes asio includes this first: all of its users must agree on these.
#ifndef ASIO_STANDALONE
#define ASIO_STANDALONE
#endif
// One thread runs a loop, and work from others passes through the loop's mutex, so asio's own
// fences add nothing. ThreadSanitizer does not know fences.
#ifndef ASIO_DISABLE_FENCED_BLOCK
#define ASIO_DISABLE_FENCED_BLOCK
#endif

namespace asio {
class io_context;
}

namespace vescomm {

// One background thread that waits for sockets and timers, and sleeps when nothing happens.
//
// Threads: post() from any; the rest from the owner.
class EventLoop {
public:
    EventLoop();
    ~EventLoop();  // as stop()

    // For links and listeners, whose handlers run in the loop's thread.
    asio::io_context &context();

    // Runs a function in the loop's thread, soon. Does nothing once the loop has stopped.
    void post(std::function<void()> function);

    // Calls a function in the loop's thread, every so many seconds. Only from the loop's thread.
    void every(double seconds, std::function<void()> function);

    // Every signal is blocked in the thread: handlers of the program run in the program's threads.
    // `caught` is told of an exception that a handler let out; the loop goes on.
    void start(std::function<void(const std::exception &)> caught);

    // Ends the thread after the handler that is running.
    void stop();

private:
    struct Machinery;
    std::unique_ptr<Machinery> machinery_;
};

}  // namespace vescomm
