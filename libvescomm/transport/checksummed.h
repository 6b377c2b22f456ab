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

std::string add_checksum(std::uint32_t magic, std::string_view body);

// Returns the body. Throws SYSTEM if it is damaged; the sentence begins with `what`.
std::string_view verify_checksum(std::uint32_t magic, std::string_view checksummed,
                                 const std::string &what);

// Throws SYSTEM: `what` arrived damaged, and why.
[[noreturn]] void refuse_damaged(const std::string &what, const std::string &why);

template <typename Head>
std::string join_checksummed(std::uint32_t magic, const Head &head, std::string_view tail) {
    std::string body(reinterpret_cast<const char *>(&head), sizeof head);
    return add_checksum(magic, body.append(tail));
}

// Splits a value that join_checksummed() joined.
template <typename Head>
std::string split_checksummed(std::uint32_t magic, std::string_view checksummed,
                              const std::string &what, Head &head) {
    const std::string_view body = verify_checksum(magic, checksummed, what);
    if (body.size() < sizeof head)
        refuse_damaged(what, std::to_string(body.size()) + " bytes are fewer than the " +
                                 std::to_string(sizeof head) + " of its fixed part");
    std::memcpy(&head, body.data(), sizeof head);
    return std::string(body.substr(sizeof head));
}

}  // namespace vescomm::internal
