// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_info.h"

#include <algorithm>

namespace vescomm::internal {

namespace {

// Order of the parts in the text.
constexpr std::string PeerInfo::*parts[] = {&PeerInfo::node,       &PeerInfo::machine,
                                            &PeerInfo::algorithms, &PeerInfo::reproducible,
                                            &PeerInfo::pool,       &PeerInfo::creator};

}  // namespace

std::string PeerInfo::text() const {
    std::string text;
    for (const auto part : parts) text += this->*part + '\0';
    return text;
}

PeerInfo PeerInfo::parse(std::string_view text) {
    PeerInfo peer_info;
    for (const auto part : parts) {
        const std::string_view read = text.substr(0, text.find('\0'));
        peer_info.*part = read;
        text.remove_prefix(std::min(read.size() + 1, text.size()));
    }
    return peer_info;
}

}  // namespace vescomm::internal
