// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/member_probe.h"

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace vescomm::internal {

namespace {

// True if the reason says that no process listens on the port.
bool refused(const std::string &why) {
    return why == std::generic_category().message(ECONNREFUSED);
}

}  // namespace

MemberProbe::MemberProbe(Network &network, const TcpAddress &address, std::string_view secret,
                         std::function<void(Answer)> done)
    : handshake_(secret, {}), done_(std::move(done)) {
    attempt_ = network.connect(
        address, [this, alive = alive_](std::unique_ptr<Stream> stream, const std::string &why) {
            if (!*alive) return;
            if (stream != nullptr) return talk(std::move(stream));
            end(refused(why) ? Answer::gone : Answer::none);
        });
}

MemberProbe::~MemberProbe() {
    *alive_ = false;
}

void MemberProbe::talk(std::unique_ptr<Stream> stream) {
    connected_ = true;
    stream_ = std::move(stream);
    stream_->start({[this](std::string_view bytes) { read(bytes); },
                    [this](const std::string &) { end(Answer::none); }, nullptr});
    stream_->write(handshake_.hello());
}

void MemberProbe::read(std::string_view bytes) {
    switch (handshake_.read(bytes)) {
        case ClientHandshake::State::waiting:
            return;
        case ClientHandshake::State::authenticated:
            return end(Answer::alive);
        case ClientHandshake::State::wrong_secret:
        case ClientHandshake::State::other_version:
        case ClientHandshake::State::not_vescomm:
            return end(Answer::gone);
        case ClientHandshake::State::welcomed:
        case ClientHandshake::State::refused:
            return end(Answer::none);  // impossible before a join
    }
}

void MemberProbe::end(Answer answer) {
    const auto done = std::move(done_);
    done(answer);
}

}  // namespace vescomm::internal
