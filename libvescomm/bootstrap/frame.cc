// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/frame.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <sys/random.h>

#include <algorithm>
#include <cassert>
#include <memory>

#include "base/error.h"
#include "base/system.h"
#include "bootstrap/group_id.h"
#include "bootstrap/wire.h"

namespace vescomm::internal {

namespace {

// No text protocol begins with the first byte, so it identifies most foreign connections.
constexpr std::string_view magic("\xd5VSC", 4);

constexpr std::size_t version_at = 4;
constexpr std::size_t type_at = 5;
constexpr std::size_t reserved_at = 6;
constexpr std::size_t sequence_at = 8;
constexpr std::size_t length_at = 16;

[[noreturn]] void refuse_libcrypto() {
    throw Error(VESCOMM_ERROR_SYSTEM,
                "libcrypto cannot compute HMAC-SHA256: it is out of memory, or its configuration "
                "forbids it");
}

using MacContext = std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)>;

// A context with HMAC-SHA256 chosen and a key of zeros. Lives until the process ends. Its
// algorithm belongs to a separate context of libcrypto, because libcrypto uses its default context
// without checking that its allocation succeeded.
EVP_MAC_CTX *make_hmac_context() {
    // Must precede every other call of OpenSSL. A program may end without freeing its
    // communicator. The control thread then computes MACs while exit handlers run, and OpenSSL's
    // exit handler would destroy the locks that it uses.
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1) refuse_libcrypto();
    std::unique_ptr<OSSL_LIB_CTX, decltype(&OSSL_LIB_CTX_free)> library(OSSL_LIB_CTX_new(),
                                                                        OSSL_LIB_CTX_free);
    if (!library) refuse_libcrypto();
    const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> algorithm(
        EVP_MAC_fetch(library.get(), OSSL_MAC_NAME_HMAC, nullptr), EVP_MAC_free);
    if (!algorithm) refuse_libcrypto();
    MacContext context(EVP_MAC_CTX_new(algorithm.get()), EVP_MAC_CTX_free);
    char digest[] = "SHA256";
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end()};
    const FrameKey key{};
    if (!context || EVP_MAC_init(context.get(), key.data(), key.size(), parameters) != 1)
        refuse_libcrypto();
    (void)library.release();
    return context.release();
}

std::string_view view(const FrameKey &key) {
    return {reinterpret_cast<const char *>(key.data()), key.size()};
}

}  // namespace

// Copies of one context: the search for the digest by its name takes as long as two MACs.
FrameKey keyed_hash(std::string_view key, std::string_view bytes) {
    static const EVP_MAC_CTX *const chosen = make_hmac_context();
    FrameKey result;
    std::size_t size = 0;
    const MacContext computation(EVP_MAC_CTX_dup(chosen), EVP_MAC_CTX_free);
    const auto data = [](const void *pointer) {
        return static_cast<const unsigned char *>(pointer);
    };
    // EVP_MAC_init() takes an empty key only with a pointer that is not null.
    if (!computation ||
        EVP_MAC_init(computation.get(), data(key.empty() ? "" : key.data()), key.size(), nullptr) !=
            1 ||
        EVP_MAC_update(computation.get(), data(bytes.data()), bytes.size()) != 1 ||
        EVP_MAC_final(computation.get(), result.data(), &size, result.size()) != 1 ||
        size != result.size())
        refuse_libcrypto();
    return result;
}

Nonce random_nonce() {
    Nonce nonce;
    // getrandom() returns this few bytes completely or not at all.
    if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
        throw system_error("cannot get random bytes for a connection from the system");
    return nonce;
}

GroupId derive_group(const GroupId &parent, std::string_view words) {
    std::string text;
    put_group(text, parent);
    text += words;
    const FrameKey hash = keyed_hash("vescomm group", text);
    const auto *bytes = reinterpret_cast<const char *>(hash.data());
    return {get_number<std::uint64_t>(bytes), get_number<std::uint64_t>(bytes + 8)};
}

FrameKey open_key() {
    FrameKey key{};
    constexpr std::string_view text = "vescomm open";
    std::copy(text.begin(), text.end(), key.begin());
    return key;
}

FrameKey session_key(std::string_view secret, Direction direction, const Nonce &joiner,
                     const Nonce &listener) {
    std::string context =
        direction == Direction::from_joiner ? "vescomm 2 from joiner" : "vescomm 2 to joiner";
    context.push_back('\0');
    context.append(joiner.begin(), joiner.end());
    context.append(listener.begin(), listener.end());
    return keyed_hash(secret, context);
}

FrameKey derived_key(std::string_view secret, std::string_view purpose) {
    return keyed_hash(secret, std::string("vescomm 2 derived key: ").append(purpose));
}

void FrameEncoder::append(std::string &to, FrameType type, std::string_view payload) {
    assert(payload.size() <= max_payload_bytes);
    const std::size_t begin = to.size();
    to.append(magic);
    put_number(to, frame_version);
    put_number(to, static_cast<std::uint8_t>(type));
    put_number(to, std::uint16_t{0});
    put_number(to, sequence_++);
    put_number(to, static_cast<std::uint32_t>(payload.size()));
    to.append(payload);
    const FrameKey mac = keyed_hash(view(key_), std::string_view(to).substr(begin));
    to.append(mac.begin(), mac.end());
}

const char *describe(FrameFault fault) {
    switch (fault) {
        case FrameFault::none:
            return "nothing wrong";
        case FrameFault::magic:
            return "something that is not the vescomm protocol";
        case FrameFault::version:
            return "another version of the protocol";
        case FrameFault::type:
            return "a frame of a type that does not exist";
        case FrameFault::length:
            return "a frame that is too long";
        case FrameFault::sequence:
            return "a frame out of order";
        case FrameFault::mac:
            return "a frame with the wrong MAC";
    }
    return "something unknown";
}

FrameDecoder::State FrameDecoder::read(std::string_view &bytes) {
    if (fault_ != FrameFault::none) return State::broken;
    if (complete_) {
        frame_.clear();
        complete_ = false;
    }
    const auto take = [&](std::size_t until) {
        const std::size_t count = std::min(until - frame_.size(), bytes.size());
        frame_.append(bytes.substr(0, count));
        bytes.remove_prefix(count);
        return frame_.size() == until;
    };
    if (frame_.size() < frame_header_bytes) {
        const bool whole = take(frame_header_bytes);
        fault_ = check_header_so_far();
        if (fault_ != FrameFault::none) return State::broken;
        if (!whole) return State::incomplete;
    }
    const std::size_t frame_bytes = frame_header_bytes + payload_size() + frame_mac_bytes;
    frame_.reserve(frame_bytes);
    if (!take(frame_bytes)) return State::incomplete;
    fault_ = check_mac();
    if (fault_ != FrameFault::none) return State::broken;
    ++sequence_;
    complete_ = true;
    return State::complete;
}

// Checks each field as soon as its last byte has arrived: foreign bytes rarely pass the first
// field.
FrameFault FrameDecoder::check_header_so_far() const {
    const std::size_t known = std::min(frame_.size(), magic.size());
    if (frame_.compare(0, known, magic, 0, known) != 0) return FrameFault::magic;
    if (frame_.size() > version_at && version() != frame_version) return FrameFault::version;
    if (frame_.size() > type_at) {
        const auto type = static_cast<std::uint8_t>(frame_[type_at]);
        if (type == 0 || type > static_cast<std::uint8_t>(last_frame_type)) return FrameFault::type;
    }
    if (frame_.size() < frame_header_bytes) return FrameFault::none;
    if (get_number<std::uint16_t>(frame_.data() + reserved_at) != 0) return FrameFault::type;
    if (get_number<std::uint64_t>(frame_.data() + sequence_at) != sequence_)
        return FrameFault::sequence;
    if (payload_size() > payload_limit_) return FrameFault::length;
    return FrameFault::none;
}

FrameFault FrameDecoder::check_mac() const {
    const std::size_t covered = frame_.size() - frame_mac_bytes;
    const FrameKey expected = keyed_hash(view(key_), std::string_view(frame_).substr(0, covered));
    const bool same = CRYPTO_memcmp(expected.data(), frame_.data() + covered, frame_mac_bytes) == 0;
    return same ? FrameFault::none : FrameFault::mac;
}

std::size_t FrameDecoder::payload_size() const {
    return get_number<std::uint32_t>(frame_.data() + length_at);
}

FrameType FrameDecoder::type() const {
    return static_cast<FrameType>(frame_[type_at]);
}

std::string_view FrameDecoder::payload() const {
    return std::string_view(frame_).substr(frame_header_bytes, payload_size());
}

std::uint8_t FrameDecoder::version() const {
    return static_cast<std::uint8_t>(frame_[version_at]);
}

}  // namespace vescomm::internal
