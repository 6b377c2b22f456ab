// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The handshake of data connections (transport/tcp_handshake.h): each end against a peer that knows
// the key, each end against a peer that guesses it, and both ends with changes in between. Messages
// are encoded here, with the right MAC, so that mutations get past it.
//
//     byte 0    the case, see below
//     byte 1    the size of the pieces in which bytes arrive
//     the rest  the claim, and changes to each message
//
// Invariants: an end accepts exactly the messages that a model of the protocol accepts; it consumes
// no byte after them; no end trusts a peer without the key; two ends meet with the same keys if no
// byte is changed; a changed byte never leaves both ends believing that they met.
#include "transport/tcp_handshake.h"

#include "bootstrap/wire.h"
#include "fuzz/fuzz.h"
#include "transport/tcp_crypto.h"

namespace {

using namespace vescomm::internal;
using fuzz::require;

constexpr FrameKey right_key{1, 2, 3}, guessed_key{1, 2, 4};
constexpr std::string_view magic("\xd5VSCTCP1", 8);
constexpr std::size_t claim_bytes = 44, mac_bytes = sizeof(FrameKey);

const TcpClaim expected{.session = {9, 8, 7}, .from = 3, .to = 1, .encrypted = true};

// The first 44 bytes of a hello.
std::string encode(const TcpClaim &claim) {
    std::string bytes(magic);
    bytes.append(claim.session.begin(), claim.session.end());
    put_number(bytes, claim.from);
    put_number(bytes, claim.to);
    put_number(bytes, std::uint32_t{claim.encrypted ? 1u : 0u});
    put_number(bytes, std::uint64_t{0});
    return bytes;
}

std::string mac(const FrameKey &key, std::string_view purpose, std::string_view before,
                std::string_view covered) {
    return std::string(view(mac_of(key, {purpose, before, covered})));
}

// A message that a peer sends: fields may be changed before the MAC is computed, bytes after it.
struct Sent {
    std::string bytes;
    bool authentic = true;  // the bytes that the MAC covers were not changed afterwards
};

Sent change(fuzz::Input &input, std::string fields, const FrameKey &key, std::string_view purpose,
            std::string_view before) {
    const std::uint8_t what = input.byte();
    if ((what & 1) != 0 && !fields.empty()) {
        char &byte = fields[input.byte() % fields.size()];
        byte = static_cast<char>(byte ^ input.byte());
    }
    Sent sent{fields + mac(key, purpose, before, fields), key == right_key};
    if ((what & 2) == 0) return sent;
    char &byte = sent.bytes[input.byte() % sent.bytes.size()];
    const std::uint8_t bits = input.byte();
    byte = static_cast<char>(byte ^ bits);
    sent.authentic &= bits == 0;
    return sent;
}

// Feeds `bytes` and a few more to an end, in pieces, until it leaves the state `waiting`. The end
// must leave the bytes after the message.
template <typename End>
typename End::State feed(End &end, std::string_view bytes, std::size_t step) {
    const std::string stream = std::string(bytes) + "behind";
    auto state = End::State::waiting;
    std::size_t taken = 0;
    fuzz::feed(stream, step, [&](std::string_view &piece) {
        const std::size_t before = piece.size();
        state = end.read(piece);
        taken += before - piece.size();
        return state == End::State::waiting;
    });
    require(state != End::State::waiting, "a whole message is accepted or refused");
    require(taken <= bytes.size(), "bytes after a message are not consumed");
    require(state == End::State::refused || taken == bytes.size(),
            "a message is consumed completely");
    return state;
}

void against_acceptor(fuzz::Input input, std::size_t step, const FrameKey &key) {
    TcpAcceptor acceptor(right_key, expected);
    TcpClaim claim = expected;
    claim.from = input.number<std::uint32_t>();
    std::string fields = encode(claim);
    std::string nonce(input.take(sizeof(Nonce)));
    nonce.resize(sizeof(Nonce));
    const Sent hello = change(input, fields + nonce, key, "vescomm tcp hello", {});
    // The connecting rank may have any number; all other fields before the nonce are fixed.
    WireReader reader(std::string_view(hello.bytes).substr(24));
    claim.from = reader.number<std::uint32_t>();
    const bool fits = hello.bytes.substr(0, claim_bytes) == encode(claim);
    auto state = feed(acceptor, hello.bytes, step);
    require((state == TcpAcceptor::State::answered) == (hello.authentic && fits),
            "a hello is answered if it is authentic and for this session, rank and mode");
    if (state != TcpAcceptor::State::answered)
        return require(acceptor.answer().empty(), "a peer that is refused gets no answer");
    require(acceptor.claim().from == claim.from, "the claim is that of the hello");
    const std::string &answer = acceptor.answer();
    require(answer.size() == tcp_answer_bytes && answer.starts_with(magic) &&
                answer.substr(tcp_answer_bytes - mac_bytes) ==
                    mac(key, "vescomm tcp answer", hello.bytes,
                        std::string_view(answer).substr(0, tcp_answer_bytes - mac_bytes)),
            "an answer proves that the acceptor knows the key");
    require(acceptor.ready().empty(), "nothing is ready before the peer has confirmed");
    const std::string before = hello.bytes + answer;
    const Sent confirm = change(input, {}, key, "vescomm tcp confirm", before);
    state = feed(acceptor, confirm.bytes, step);
    require((state == TcpAcceptor::State::confirmed) == confirm.authentic,
            "a connection is established if the confirmation is authentic");
    require(
        acceptor.ready() ==
            (confirm.authentic ? mac(key, "vescomm tcp ready", before + confirm.bytes, {}) : ""),
        "ready shows that the confirmation has arrived");
}

void against_connector(fuzz::Input input, std::size_t step, const FrameKey &key) {
    TcpConnector connector(right_key, expected);
    const std::string hello = connector.hello();
    require(hello.size() == tcp_hello_bytes && hello.starts_with(encode(expected)) &&
                hello.substr(tcp_hello_bytes - mac_bytes) ==
                    mac(right_key, "vescomm tcp hello", {},
                        std::string_view(hello).substr(0, tcp_hello_bytes - mac_bytes)),
            "a hello contains the claim and is authentic");
    std::string nonce(input.take(sizeof(Nonce)));
    nonce.resize(sizeof(Nonce));
    const Sent answer = change(input, std::string(magic) + nonce, key, "vescomm tcp answer", hello);
    auto state = feed(connector, answer.bytes, step);
    require((state == TcpConnector::State::answered) ==
                (answer.authentic && answer.bytes.starts_with(magic)),
            "an answer is accepted if it is authentic");
    if (state != TcpConnector::State::answered)
        return require(connector.confirm().empty(), "an unauthenticated peer gets no confirmation");
    const std::string before = hello + answer.bytes + connector.confirm();
    require(connector.confirm() == mac(key, "vescomm tcp confirm", hello + answer.bytes, {}),
            "a confirmation covers the hello and the answer");
    const Sent ready = change(input, {}, key, "vescomm tcp ready", before);
    state = feed(connector, ready.bytes, step);
    require((state == TcpConnector::State::ready) == ready.authentic,
            "a connection is established if the acceptor is ready");
}

// One direction between the two ends, and its changes in transit.
class Way {
public:
    explicit Way(fuzz::Input &input) : input_(input) {}

    void send(std::string bytes) {
        const std::string before = bytes;
        const std::size_t at = input_.byte() % std::max<std::size_t>(bytes.size(), 1);
        fuzz::change(input_, input_.byte(), at, bytes);
        changed_ = changed_ || !bytes.starts_with(before) || extended_;
        extended_ = extended_ || bytes.size() > before.size();
        rest_ += bytes;
    }

    template <typename End>
    typename End::State receive(End &end, std::size_t step) {
        auto state = End::State::waiting;
        std::size_t taken = 0;
        fuzz::feed(rest_, step, [&](std::string_view &piece) {
            const std::size_t before = piece.size();
            state = end.read(piece);
            taken += before - piece.size();
            return state == End::State::waiting;
        });
        rest_.erase(0, taken);
        return state;
    }

    // True if bytes of the handshake were replaced or removed.
    bool changed() const { return changed_; }
    bool touched() const { return changed_ || extended_; }

private:
    fuzz::Input &input_;
    std::string rest_;
    bool changed_ = false;
    bool extended_ = false;
};

void in_the_middle(fuzz::Input input, std::size_t step) {
    TcpConnector connector(right_key, expected);
    TcpAcceptor acceptor(right_key, expected);
    Way there(input), back(input);
    bool made = false, ready = false;
    there.send(connector.hello());
    if (there.receive(acceptor, step) == TcpAcceptor::State::answered) {
        back.send(acceptor.answer());
        if (back.receive(connector, step) == TcpConnector::State::answered) {
            there.send(connector.confirm());
            made = there.receive(acceptor, step) == TcpAcceptor::State::confirmed;
        }
    }
    if (made) {
        back.send(acceptor.ready());
        ready = back.receive(connector, step) == TcpConnector::State::ready;
    }
    require(ready || there.touched() || back.touched(), "two ends meet if no byte is changed");
    require(!ready || (!there.changed() && !back.changed()), "every changed byte is detected");
    if (!ready) return;
    const TcpKeys one = connector.keys(), other = acceptor.keys();
    require(one.to_acceptor == other.to_acceptor && one.from_acceptor == other.from_acceptor,
            "both ends have the same keys");
    require(one.to_acceptor != one.from_acceptor, "each direction has a key of its own");
    require(acceptor.claim().from == expected.from, "the acceptor knows the rank that connected");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    fuzz::Input input(fuzz::view(data, size));
    const std::size_t what = input.below(5);
    const std::size_t step = 1 + input.byte();
    const FrameKey &key = what % 2 == 0 ? right_key : guessed_key;
    if (what < 2) against_acceptor(input, step, key);
    else if (what < 4) against_connector(input, step, key);
    else in_the_middle(input, step);
    return 0;
}

std::vector<fuzz::Seed> vescomm::internal::fuzz::seeds() {
    const std::string nonce(sizeof(Nonce), 'n'), from("\5\0\0\0", 4);
    std::vector<Seed> seeds;
    const auto add = [&](const char *name, std::string_view head, const std::string &script) {
        seeds.push_back({name, std::string(head) + script});
    };
    // Changes: 1, an offset and bits before the MAC; 2, an offset and bits after it.
    add("acceptor", {"\0\xff", 2}, from + nonce + std::string(2, '\0'));
    add("acceptor-bytewise", {"\0\0", 2}, from + nonce + std::string(2, '\0'));
    add("acceptor-guessed-key", {"\1\xff", 2}, from + nonce + std::string(2, '\0'));
    add("acceptor-other-protocol", {"\0\0", 2}, from + nonce + std::string("\1\0\1\0", 4));
    add("acceptor-other-session", {"\0\xff", 2}, from + nonce + std::string("\1\x08\1\0", 4));
    add("acceptor-other-rank-connects", {"\0\xff", 2}, from + nonce + std::string("\1\x18\1\0", 4));
    add("acceptor-other-rank-accepts", {"\0\xff", 2}, from + nonce + std::string("\1\x1c\1\0", 4));
    add("acceptor-not-encrypted", {"\0\xff", 2}, from + nonce + std::string("\1\x20\1\0", 4));
    add("acceptor-reserved", {"\0\xff", 2}, from + nonce + std::string("\1\x24\1\0", 4));
    add("acceptor-hello-damaged", {"\0\xff", 2}, from + nonce + std::string("\2\x30\1\0", 4));
    add("acceptor-confirm-damaged", {"\0\xff", 2}, from + nonce + std::string("\0\2\x05\1", 4));
    add("connector", {"\2\xff", 2}, nonce + std::string(2, '\0'));
    add("connector-bytewise", {"\2\0", 2}, nonce + std::string(2, '\0'));
    add("connector-guessed-key", {"\3\xff", 2}, nonce + std::string(2, '\0'));
    add("connector-other-protocol", {"\2\xff", 2}, nonce + std::string("\1\7\1\0", 4));
    add("connector-answer-damaged", {"\2\xff", 2}, nonce + std::string("\2\x20\1\0", 4));
    add("connector-ready-damaged", {"\2\xff", 2}, nonce + std::string("\0\2\x05\1", 4));
    add("middle-alone", {"\4\0", 2}, {});
    add("middle-changes-the-hello", {"\4\xff", 2}, {"\x20\1\1", 3});
    add("middle-changes-the-confirmation", {"\4\xff", 2}, {"\0\0\0\0\5\1\1", 7});
    add("middle-repeats", {"\4\xff", 2}, {"\0\5", 2});
    add("middle-cuts", {"\4\7", 2}, {"\x40\2", 2});
    return seeds;
}
