// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/acceptor.h"
#include "simulated_network.h"

namespace vescomm::internal::testing_support {

// A process of a simulated network that listens and does not know the secret.
class UnauthenticatedPeer {
public:
    enum class Manner { silent, closing, other_secret, other_version, other_protocol, count };

    UnauthenticatedPeer(SimulatedWorld &world, int process, const TcpAddress &address,
                        Manner manner)
        : network_(world, process),
          manner_(manner),
          acceptor_(network_, "another secret", [](Acceptor::Joined) {}) {
        if (manner == Manner::other_secret) acceptor_.listen(address);
        else
            listener_ = network_.listen(
                address, [this](std::unique_ptr<Stream> stream) { accept(std::move(stream)); });
    }

private:
    void accept(std::unique_ptr<Stream> stream) {
        if (manner_ == Manner::closing) return;
        if (manner_ == Manner::other_version) stream->write(of_version_9());
        if (manner_ == Manner::other_protocol) stream->write("HTTP/1.1 400 Bad Request\r\n\r\n");
        streams_.push_back(std::move(stream));
        streams_.back()->start({[](std::string_view) {}, [](const std::string &) {}, nullptr});
    }
    static std::string of_version_9() {
        std::string frame = ClientHandshake("another secret", {}).hello();
        frame[4] = 9;
        return frame;
    }

    SimulatedNetwork network_;
    const Manner manner_;
    Acceptor acceptor_;
    std::unique_ptr<Listener> listener_;
    std::vector<std::unique_ptr<Stream>> streams_;
};

}  // namespace vescomm::internal::testing_support
