// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "bootstrap/network.h"

namespace vescomm {

// The network of the operating system, and the one thread of this process that serves the control
// planes of all its communicators. The thread sleeps when nothing happens; every signal is blocked
// in it, so handlers of the program run in the program's threads.
class OsNetwork final : public Network {
public:
    // `caught` is given an exception that a callback let out, in the network's thread; the thread
    // goes on.
    explicit OsNetwork(std::function<void(const std::exception &)> caught);
    // Ends the thread after the callback that is running. Not in the network's thread.
    ~OsNetwork() override;

    Clock::time_point now() const override { return Clock::now(); }
    void post(std::function<void()> function) override;
    std::unique_ptr<Timer> at(Clock::time_point when, std::function<void()> function) override;
    std::unique_ptr<Attempt> connect(const TcpAddress &address, Connected done) override;
    std::unique_ptr<Listener> listen(const TcpAddress &address, Accepted accepted) override;
    std::unique_ptr<Listener> listen_with(int descriptor, Accepted accepted) override;
    std::unique_ptr<Attempt> connect_local(const std::string &name, Connected done) override;
    std::unique_ptr<Listener> listen_local(const std::string &name, Accepted accepted) override;

    // Runs a function in the network's thread and waits for its end; its exceptions come out here.
    void run(const std::function<void()> &function);

private:
    struct Machinery;
    std::shared_ptr<Machinery> machinery_;  // shared with threads that resolve names
};

}  // namespace vescomm
