// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <sstream>
#include <string>

namespace vescomm::internal::device {

// The sentence of an address that is not aligned to its elements.
inline std::string unaligned_text(const char *name, const void *address, std::size_t alignment) {
    std::ostringstream text;
    text << name << " is not aligned to its elements of " << alignment << " bytes: it is "
         << address << "; pass a multiple of " << alignment;
    return text.str();
}

}  // namespace vescomm::internal::device
