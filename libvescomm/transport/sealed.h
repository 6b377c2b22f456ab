// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace vescomm::internal {

// Values that the control plane carries once, protected by their length and an XXH3 checksum
// against damage and version skew. A value is a head of fixed size and bytes that follow it. The
// magic number identifies the type: "VC", "U" or "T" for the transport, and a letter. A change of
// the format changes the letter.

std::string seal_bytes(std::uint32_t magic, std::string_view body);

// Returns the body. Throws SYSTEM if it is damaged; the sentence begins with `what`.
std::string_view open_sealed(std::uint32_t magic, std::string_view sealed, const std::string &what);

// Throws SYSTEM: `what` arrived damaged, and why.
[[noreturn]] void refuse_sealed(const std::string &what, const std::string &why);

template <typename Head>
std::string seal_up(std::uint32_t magic, const Head &head, std::string_view tail) {
    std::string body(reinterpret_cast<const char *>(&head), sizeof head);
    return seal_bytes(magic, body.append(tail));
}

// Splits a value that seal_up() joined.
template <typename Head>
std::string break_seal(std::uint32_t magic, std::string_view sealed, const std::string &what,
                       Head &head) {
    const std::string_view body = open_sealed(magic, sealed, what);
    if (body.size() < sizeof head)
        refuse_sealed(what, std::to_string(body.size()) + " bytes are fewer than the " +
                                std::to_string(sizeof head) + " of its fixed part");
    std::memcpy(&head, body.data(), sizeof head);
    return std::string(body.substr(sizeof head));
}

}  // namespace vescomm::internal
