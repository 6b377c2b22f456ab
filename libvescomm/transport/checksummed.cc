// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/checksummed.h"

#include "base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace vescomm::internal {
namespace {

struct Head {
    std::uint32_t magic = 0;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;  // number of bytes after this head
    std::uint64_t checksum = 0;  // checksum of those bytes, seeded with the magic
};

}  // namespace

std::string add_checksum(std::uint32_t magic, std::string_view body) {
    const Head head{magic, 0, body.size(), XXH3_64bits_withSeed(body.data(), body.size(), magic)};
    return std::string(reinterpret_cast<const char *>(&head), sizeof head).append(body);
}

void refuse_damaged(const std::string &what, const std::string &why) {
    throw Error(VESCOMM_ERROR_SYSTEM, what + " arrived damaged: " + why +
                                          "; all ranks must run the same version of vescomm");
}

std::string_view verify_checksum(std::uint32_t magic, std::string_view checksummed,
                                 const std::string &what) {
    Head head;
    if (checksummed.size() < sizeof head)
        refuse_damaged(what, std::to_string(checksummed.size()) + " bytes are fewer than the " +
                                 std::to_string(sizeof head) + " of its head");
    std::memcpy(&head, checksummed.data(), sizeof head);
    const std::string_view body = checksummed.substr(sizeof head);
    if (head.magic != magic || head.reserved != 0)
        refuse_damaged(what, "it does not begin with its magic number");
    if (head.bytes != body.size())
        refuse_damaged(what, "it announces " + std::to_string(head.bytes) + " bytes and has " +
                                 std::to_string(body.size()));
    if (head.checksum != XXH3_64bits_withSeed(body.data(), body.size(), magic))
        refuse_damaged(what, "its checksum does not match");
    return body;
}

}  // namespace vescomm::internal
