// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "bootstrap/handshake.h"
#include "bootstrap/network.h"

namespace vescomm::internal {

// Asks the process that listens at the address of a member of a session to prove that it knows the
// secret of the listener, and then disconnects. Another process, of the same job too, may have got
// the port of a member that has ended.
//
// Used in the network's thread only.
class MemberProbe {
public:
    enum class Answer {
        alive,  // it proved to know the secret
        gone,  // no process listens there, or one without the secret
        none,  // the connection failed or ended without an answer, which proves nothing
    };

    // `done` is called once, later, and may destroy this object. The secret is borrowed.
    MemberProbe(Network &network, const TcpAddress &address, std::string_view secret,
                std::function<void(Answer)> done);
    ~MemberProbe();

    // The operating system of the member has accepted the connection.
    bool connected() const { return connected_; }

private:
    void talk(std::unique_ptr<Stream> stream);
    void read(std::string_view bytes);
    void end(Answer answer);

    ClientHandshake handshake_;
    std::function<void(Answer)> done_;
    bool connected_ = false;
    std::unique_ptr<Attempt> attempt_;
    std::unique_ptr<Stream> stream_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm::internal
