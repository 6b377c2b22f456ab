// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/tcp_address.h"

namespace vescomm {

// What rank 0 sends through a caller's all-gather: where it listens, and the secret of the job.
struct Invitation {
    std::vector<TcpAddress> addresses;
    std::string secret;

    // The addresses, a space between two, and after a zero byte the secret.
    std::string text() const;
    // The text may be anything: what the caller's all-gather brought. Throws Error.
    static Invitation parse(std::string_view text);

    bool operator==(const Invitation &) const = default;
};

}  // namespace vescomm
