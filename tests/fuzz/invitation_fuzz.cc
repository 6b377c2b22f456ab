// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Addresses of rank 0, and the invitation that carries them through a caller's all-gather
// (comm/invitation.h, bootstrap/tcp_address.h).
//
//     byte 0    0: an invitation; otherwise an address
//
// Invariants: the text of an accepted value parses to the same value; no address contains a
// character that host names cannot contain.
#include "comm/invitation.h"

#include "base/error.h"
#include "fuzz/fuzz.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

void check(const TcpAddress &address) {
    require(!address.host.empty() && address.port != 0, "an address has a host and a port");
    for (const unsigned char letter : address.host)
        require(letter > ' ' && letter != 0x7f, "a host has no spaces");
    require(parse_tcp_address(to_text(address), "again") == address,
            "the text of an address parses to the same address");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    try {
        if (input.byte() == 0) {
            const Invitation invitation = Invitation::parse(input.rest());
            require(!invitation.secret.empty(), "an invitation has a secret");
            for (const TcpAddress &address : invitation.addresses) check(address);
            require(Invitation::parse(invitation.text()) == invitation,
                    "the text of an invitation parses to the same invitation");
        } else {
            check(parse_tcp_address(input.rest(), "the address"));
        }
    } catch (const Error &error) {
        fuzz::require_sentence(error.what());
    }
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const std::string zero(1, '\0');
    return {
        {"invitation", zero + Invitation{{{"10.0.0.1", 5000}, {"::1", 65535}}, "secret"}.text()},
        {"no-secret", zero + "host:1" + zero},
        {"no-end", zero + "host:1"},
        {"no-address", zero + zero + "secret"},
        {"name", "1node-1.example:29500"},
        {"ipv4", "1127.0.0.1:1"},
        {"ipv6", "1[fe80::1]:80"},
        {"ipv6-bare", "1::1:80"},
        {"brackets", "1[[a]]:80"},
        {"no-port", "1host"},
        {"port-too-large", "1host:65536"},
    };
}
