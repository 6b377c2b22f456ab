// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/invitation.h"

#include <algorithm>

#include "base/error.h"

namespace vescomm::internal {

std::string Invitation::text() const {
    std::string text;
    for (const TcpAddress &address : addresses)
        text += (text.empty() ? "" : " ") + to_text(address);
    return text + '\0' + secret;
}

Invitation Invitation::parse(std::string_view text) {
    const std::size_t end = text.find('\0');
    if (end == std::string_view::npos || end + 1 == text.size())
        throw Error(VESCOMM_ERROR_SYSTEM,
                    "what the given all_gather brought from rank 0 is not what rank 0 sent");
    Invitation invitation;
    invitation.secret = text.substr(end + 1);
    for (std::size_t at = 0; at < end;) {
        const std::size_t space = std::min(text.find(' ', at), end);
        invitation.addresses.push_back(
            parse_tcp_address(text.substr(at, space - at), "an address of rank 0"));
        at = space + 1;
    }
    return invitation;
}

}  // namespace vescomm::internal
