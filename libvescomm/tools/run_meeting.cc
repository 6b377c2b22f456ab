// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/run_meeting.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <utility>

#include "base/system.h"
#include "bootstrap/tcp_address.h"

namespace vescomm::internal {

namespace {

std::string make_secret() {
    std::array<unsigned char, 32> bytes;
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
        throw system_error("cannot get random bytes from the system");
    std::string text;
    for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
    return text;
}

bool port_is_free(std::uint16_t port) {
    try {
        return !listen_on({"127.0.0.1", port}).empty();
    } catch (const Error &) {
        return false;
    }
}

// Finds two consecutive free ports: MASTER_PORT is always the port after that of VESCOMM_ADDRESS.
Descriptor listen_on_free_ports() {
    constexpr int tries = 50;
    for (int i = 0; i < tries; ++i) {
        Descriptor listener = std::move(listen_on({"127.0.0.1", 0}).front());
        const std::uint16_t port = port_of(listener.get());
        if (port < 65535 && port_is_free(static_cast<std::uint16_t>(port + 1))) return listener;
    }
    throw Error(VESCOMM_ERROR_SYSTEM, "no two free ports were found; give --address HOST:PORT");
}

}  // namespace

MeetingPlace::MeetingPlace(const RunOptions &options)
    : secret_(options.secret.empty() ? make_secret() : options.secret) {
    if (!options.address.empty()) {
        const TcpAddress address = parse_tcp_address(options.address, "--address");
        if (options.first_rank == 0) listener_ = std::move(listen_on(address).front());
        host_ = address.host;
        port_ = address.port;
    } else {
        listener_ = listen_on_free_ports();
        host_ = "127.0.0.1";
        port_ = port_of(listener_.get());
    }
}

}  // namespace vescomm::internal
