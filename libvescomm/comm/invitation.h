// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/tcp_address.h"

namespace vescomm::internal {

// Sent by rank 0 through the caller's all-gather: the addresses where it listens, and the secret of
// the job.
struct Invitation {
    std::vector<TcpAddress> addresses;
    std::string secret;

    // The addresses, separated by spaces; a zero byte; the secret.
    std::string text() const;
    // `text` comes from the caller's all-gather and may be anything. Throws Error.
    static Invitation parse(std::string_view text);

    bool operator==(const Invitation &) const = default;
};

}  // namespace vescomm::internal
