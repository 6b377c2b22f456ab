// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/sealed.h"

#include "base/error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace vescomm::internal {
namespace {

struct Seal {
    std::uint32_t magic = 0;
    std::uint32_t reserved = 0;
    std::uint64_t bytes = 0;  // number of bytes after this head
    std::uint64_t checksum = 0;  // checksum of those bytes, seeded with the magic
};

}  // namespace

std::string seal_bytes(std::uint32_t magic, std::string_view body) {
    const Seal seal{magic, 0, body.size(), XXH3_64bits_withSeed(body.data(), body.size(), magic)};
    return std::string(reinterpret_cast<const char *>(&seal), sizeof seal).append(body);
}

void refuse_sealed(const std::string &what, const std::string &why) {
    throw Error(VESCOMM_ERROR_SYSTEM, what + " arrived damaged: " + why +
                                          "; all ranks must run the same version of vescomm");
}

std::string_view open_sealed(std::uint32_t magic, std::string_view sealed,
                             const std::string &what) {
    Seal seal;
    if (sealed.size() < sizeof seal)
        refuse_sealed(what, std::to_string(sealed.size()) + " bytes are fewer than the " +
                                std::to_string(sizeof seal) + " of its seal");
    std::memcpy(&seal, sealed.data(), sizeof seal);
    const std::string_view body = sealed.substr(sizeof seal);
    if (seal.magic != magic || seal.reserved != 0)
        refuse_sealed(what, "it does not begin with its magic number");
    if (seal.bytes != body.size())
        refuse_sealed(what, "it announces " + std::to_string(seal.bytes) + " bytes and has " +
                                std::to_string(body.size()));
    if (seal.checksum != XXH3_64bits_withSeed(body.data(), body.size(), magic))
        refuse_sealed(what, "its checksum does not match");
    return body;
}

}  // namespace vescomm::internal
