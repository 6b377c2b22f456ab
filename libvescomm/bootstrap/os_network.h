// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <functional>
#include <memory>

#include "bootstrap/network.h"

namespace vescomm::internal {

// The network of the operating system. One thread of this process serves the control planes of all
// its communicators. The thread sleeps while nothing happens. It blocks every signal, so handlers
// of the program run in the program's threads.
class OsNetwork final : public Network {
public:
    // `caught` is called in the network's thread with every exception that leaves a callback; the
    // thread then continues.
    explicit OsNetwork(std::function<void(const std::exception &)> caught);
    // Ends the thread after the callback that is running. Must not be called in the network's
    // thread.
    ~OsNetwork() override;

    Clock::time_point now() const override { return Clock::now(); }
    void post(std::function<void()> function) override;
    std::unique_ptr<Timer> at(Clock::time_point when, std::function<void()> function) override;
    std::unique_ptr<Attempt> connect(const TcpAddress &address, Connected done) override;
    std::unique_ptr<Listener> listen(const TcpAddress &address, Accepted accepted) override;
    std::unique_ptr<Listener> listen_with(int descriptor, Accepted accepted) override;
    std::unique_ptr<Attempt> connect_local(const std::string &name, Connected done) override;
    std::unique_ptr<Listener> listen_local(const std::string &name, Accepted accepted) override;

    // Runs a function in the network's thread and waits for its end. Rethrows its exceptions.
    void run(const std::function<void()> &function);
    // True in the network's thread.
    bool is_own_thread() const noexcept;

private:
    struct Machinery;
    std::shared_ptr<Machinery> machinery_;  // shared with threads that resolve names
};

}  // namespace vescomm::internal
