// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/introduction.h"

#include <algorithm>

namespace vescomm {

namespace {

// Their order on the wire.
constexpr std::string Introduction::*parts[] = {&Introduction::node, &Introduction::machine,
                                                &Introduction::algorithms,
                                                &Introduction::reproducible};

}  // namespace

std::string Introduction::text() const {
    std::string text;
    for (const auto part : parts) text += this->*part + '\0';
    return text;
}

Introduction Introduction::parse(std::string_view text) {
    Introduction introduction;
    for (const auto part : parts) {
        const std::string_view read = text.substr(0, text.find('\0'));
        introduction.*part = read;
        text.remove_prefix(std::min(read.size() + 1, text.size()));
    }
    return introduction;
}

}  // namespace vescomm
