// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstring>
#include <string>

#include "base/error.h"

namespace vescomm::internal {

// Must precede every other call of OpenSSL: its exit handlers would destroy locks that a thread
// still uses.
static void prepare_openssl() {
    static const int no_cleanup_at_exit = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    (void)no_cleanup_at_exit;
}

FrameKey mac_of(const FrameKey &key, std::initializer_list<std::string_view> parts) {
    prepare_openssl();
    std::string bytes;
    for (const std::string_view part : parts) bytes.append(part);
    FrameKey mac;
    unsigned int size = 0;
    const unsigned char *done = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                     reinterpret_cast<const unsigned char *>(bytes.data()),
                                     bytes.size(), mac.data(), &size);
    if (done == nullptr || size != mac.size())
        throw Error(VESCOMM_ERROR_SYSTEM,
                    "libcrypto cannot compute HMAC-SHA256; its configuration may forbid it");
    return mac;
}

bool same_mac(std::string_view one, std::string_view other) noexcept {
    return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

struct RecordCipher::Context {
    ~Context() { EVP_CIPHER_CTX_free(cipher); }
    EVP_CIPHER_CTX *cipher = nullptr;
};

RecordCipher::RecordCipher(Purpose purpose, const FrameKey &key)
    : context_(std::make_unique<Context>()) {
    prepare_openssl();
    context_->cipher = EVP_CIPHER_CTX_new();
    const int encrypts = purpose == Purpose::seal ? 1 : 0;
    if (context_->cipher == nullptr ||
        EVP_CipherInit_ex(context_->cipher, EVP_aes_256_gcm(), nullptr, key.data(), nullptr,
                          encrypts) != 1)
        throw Error(VESCOMM_ERROR_SYSTEM,
                    "libcrypto cannot encrypt with AES-256-GCM; its configuration may forbid it");
}

RecordCipher::~RecordCipher() = default;

// The nonce is the number of the record. It is never reused, because a key serves only one
// direction of one connection.
bool RecordCipher::begin(std::string_view head) noexcept {
    std::array<unsigned char, 12> nonce{};
    for (std::size_t i = 0; i < sizeof number_; ++i)
        nonce[i] = static_cast<unsigned char>(number_ >> (8 * i));
    ++number_;
    int bytes = 0;
    return EVP_CipherInit_ex(context_->cipher, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
           EVP_CipherUpdate(context_->cipher, nullptr, &bytes,
                            reinterpret_cast<const unsigned char *>(head.data()),
                            static_cast<int>(head.size())) == 1;
}

bool RecordCipher::seal(std::string_view head, const std::byte *first, std::size_t first_bytes,
                        const std::byte *second, std::size_t second_bytes, std::byte *to) noexcept {
    if (!begin(head)) return false;
    auto *at = reinterpret_cast<unsigned char *>(to);
    const auto add = [&](const std::byte *from, std::size_t size) {
        int bytes = 0;
        if (size > 0 && EVP_CipherUpdate(context_->cipher, at, &bytes,
                                         reinterpret_cast<const unsigned char *>(from),
                                         static_cast<int>(size)) != 1)
            return false;
        at += bytes;
        return static_cast<std::size_t>(bytes) == size;
    };
    int rest = 0;
    return add(first, first_bytes) && add(second, second_bytes) &&
           EVP_CipherFinal_ex(context_->cipher, at, &rest) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_->cipher, EVP_CTRL_AEAD_GET_TAG, tag_bytes, at) == 1;
}

bool RecordCipher::open(std::string_view head, const std::byte *from, std::size_t size,
                        std::byte *to) noexcept {
    if (!begin(head)) return false;
    int bytes = 0, rest = 0;
    auto *out = reinterpret_cast<unsigned char *>(to);
    unsigned char tag[tag_bytes];
    std::memcpy(tag, from + size, tag_bytes);
    return EVP_CipherUpdate(context_->cipher, out, &bytes,
                            reinterpret_cast<const unsigned char *>(from),
                            static_cast<int>(size)) == 1 &&
           static_cast<std::size_t>(bytes) == size &&
           EVP_CIPHER_CTX_ctrl(context_->cipher, EVP_CTRL_AEAD_SET_TAG, tag_bytes, tag) == 1 &&
           EVP_CipherFinal_ex(context_->cipher, out + bytes, &rest) == 1;
}

}  // namespace vescomm::internal
