// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_handshake.h"

#include <algorithm>

#include "bootstrap/wire.h"
#include "transport/tcp_crypto.h"

namespace vescomm::internal {
namespace {

// No text protocol begins with the first byte. A change of the format changes the digit.
constexpr std::string_view magic("\xd5VSCTCP1", 8);
constexpr std::uint32_t encrypted_bit = 1;

// The bytes of a hello before its nonce.
std::string claim_bytes(const TcpClaim &claim) {
    std::string bytes(magic);
    bytes.append(claim.session.begin(), claim.session.end());
    put_number(bytes, claim.from);
    put_number(bytes, claim.to);
    put_number(bytes, claim.encrypted ? encrypted_bit : std::uint32_t{0});
    const std::uint64_t reserved = 0;
    put_number(bytes, reserved);
    return bytes;
}

constexpr std::size_t claim_size = 8 + 16 + 4 + 4 + 4 + 8;
constexpr std::size_t nonce_size = sizeof(Nonce);
static_assert(tcp_hello_bytes == claim_size + nonce_size + sizeof(FrameKey));
static_assert(tcp_answer_bytes == magic.size() + nonce_size + sizeof(FrameKey));

// Moves bytes until `to` has `size` of them. Returns true when it has.
bool fill(std::string &to, std::size_t size, std::string_view &bytes) {
    const std::size_t count = std::min(size - to.size(), bytes.size());
    to.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    return to.size() == size;
}

void append_mac(std::string &to, const FrameKey &key, std::string_view purpose,
                std::string_view before) {
    const FrameKey mac = mac_of(key, {purpose, before, to});
    to.append(view(mac));
}

// True if `bytes` ends with the MAC over the bytes before it.
bool has_mac(std::string_view bytes, const FrameKey &key, std::string_view purpose,
             std::string_view before) {
    const std::string_view covered = bytes.substr(0, bytes.size() - sizeof(FrameKey));
    return same_mac(view(mac_of(key, {purpose, before, covered})), bytes.substr(covered.size()));
}

constexpr std::string_view hello_purpose = "vescomm tcp hello";
constexpr std::string_view answer_purpose = "vescomm tcp answer";
constexpr std::string_view confirm_purpose = "vescomm tcp confirm";
constexpr std::string_view ready_purpose = "vescomm tcp ready";

TcpKeys keys_of(const FrameKey &key, std::string_view hello, std::string_view answer) {
    return {mac_of(key, {"vescomm tcp data to acceptor", hello, answer}),
            mac_of(key, {"vescomm tcp data from acceptor", hello, answer})};
}

}  // namespace

TcpSession random_session() {
    const Nonce nonce = random_nonce();
    TcpSession session;
    std::copy_n(nonce.begin(), session.size(), session.begin());
    return session;
}

TcpConnector::TcpConnector(const FrameKey &key, const TcpClaim &claim)
    : key_(key), hello_(claim_bytes(claim)) {
    hello_.append(view(random_nonce()));
    append_mac(hello_, key_, hello_purpose, {});
}

TcpConnector::State TcpConnector::read(std::string_view &bytes) {
    if (answer_.size() < tcp_answer_bytes) {
        if (!fill(answer_, tcp_answer_bytes, bytes)) return State::waiting;
        if (!std::string_view(answer_).starts_with(magic) ||
            !has_mac(answer_, key_, answer_purpose, hello_))
            return State::refused;
        append_mac(confirm_, key_, confirm_purpose, hello_ + answer_);
        return State::answered;
    }
    if (!fill(ready_, tcp_ready_bytes, bytes)) return State::waiting;
    return has_mac(ready_, key_, ready_purpose, hello_ + answer_ + confirm_) ? State::ready
                                                                             : State::refused;
}

TcpKeys TcpConnector::keys() const {
    return keys_of(key_, hello_, answer_);
}

TcpAcceptor::TcpAcceptor(const FrameKey &key, const TcpClaim &claim) : key_(key), claim_(claim) {}

bool TcpAcceptor::check_hello() {
    WireReader reader(std::string_view(hello_).substr(magic.size() + claim_.session.size()));
    claim_.from = reader.number<std::uint32_t>();
    return std::string_view(hello_).starts_with(claim_bytes(claim_)) &&
           has_mac(hello_, key_, hello_purpose, {});
}

TcpAcceptor::State TcpAcceptor::read(std::string_view &bytes) {
    if (hello_.size() < tcp_hello_bytes) {
        const bool whole = fill(hello_, tcp_hello_bytes, bytes);
        // The first byte identifies most foreign connections.
        const std::size_t known = std::min(hello_.size(), magic.size());
        if (std::string_view(hello_).substr(0, known) != magic.substr(0, known))
            return State::refused;
        if (!whole) return State::waiting;
        if (!check_hello()) return State::refused;
        answer_ = magic;
        answer_.append(view(random_nonce()));
        append_mac(answer_, key_, answer_purpose, hello_);
        return State::answered;
    }
    if (!fill(confirm_, tcp_confirm_bytes, bytes)) return State::waiting;
    if (!has_mac(confirm_, key_, confirm_purpose, hello_ + answer_)) return State::refused;
    append_mac(ready_, key_, ready_purpose, hello_ + answer_ + confirm_);
    return State::confirmed;
}

TcpKeys TcpAcceptor::keys() const {
    return keys_of(key_, hello_, answer_);
}

}  // namespace vescomm::internal
