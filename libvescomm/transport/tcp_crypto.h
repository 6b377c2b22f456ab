// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string_view>

#include "bootstrap/frame.h"

namespace vescomm::internal {

// HMAC-SHA256 over the concatenation of the parts. The caller ensures that no two lists of parts
// with one purpose have the same concatenation. Throws if libcrypto fails.
FrameKey mac_of(const FrameKey &key, std::initializer_list<std::string_view> parts);

// Compares in constant time.
bool same_mac(std::string_view one, std::string_view other) noexcept;

inline std::string_view view(const FrameKey &bytes) {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// One direction of an encrypted connection: AES-256-GCM records, numbered from 0. A record that was
// changed, repeated, dropped or reordered fails to open.
class RecordCipher {
public:
    enum class Purpose { seal, open };

    static constexpr std::size_t tag_bytes = 16;

    // Throws if libcrypto does not have the cipher.
    RecordCipher(Purpose purpose, const FrameKey &key);
    ~RecordCipher();
    RecordCipher(const RecordCipher &) = delete;
    RecordCipher &operator=(const RecordCipher &) = delete;

    // Encrypts the next record, given in two parts, to `to`: both parts back to back, then the tag.
    // `head` is authenticated with it. Returns false if libcrypto failed.
    bool seal(std::string_view head, const std::byte *first, std::size_t first_bytes,
              const std::byte *second, std::size_t second_bytes, std::byte *to) noexcept;

    // Decrypts `bytes` bytes and checks the tag behind them. Returns false if the peer did not
    // encrypt them so; `to` must then not be used.
    bool open(std::string_view head, const std::byte *from, std::size_t bytes,
              std::byte *to) noexcept;

private:
    struct Context;
    bool begin(std::string_view head) noexcept;

    std::unique_ptr<Context> context_;
    std::uint64_t number_ = 0;
};

}  // namespace vescomm::internal
