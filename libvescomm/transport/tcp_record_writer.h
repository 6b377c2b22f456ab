// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <vector>

#include "transport/tcp_crypto.h"
#include "transport/tcp_segment.h"

namespace vescomm::internal {

// Writes the encrypted records of a connection, one at a time.
class TcpRecordWriter {
public:
    // Bytes that a record holds at most.
    static constexpr std::size_t max_bytes =
        max_record_bytes - record_head_bytes - RecordCipher::tag_bytes;

    // Throws if libcrypto does not have the cipher.
    explicit TcpRecordWriter(const FrameKey &key);

    // True: a record is sealed, and the kernel has not taken all of it.
    bool under_way() const noexcept { return size_ > 0; }
    // Encrypts the next record: one or two parts, together at most max_bytes. Returns false if
    // libcrypto failed. No record is under way.
    bool seal(std::span<const iovec> parts) noexcept;
    // Hands the record over. Returns the number of bytes that it holds once the kernel has taken
    // all of it; 0: it has not, for the reason in errno.
    std::size_t send(int socket) noexcept;

private:
    RecordCipher cipher_;
    std::vector<std::byte> record_;
    std::size_t size_ = 0;  // 0: no record is under way
    std::size_t sent_ = 0;
    std::size_t holds_ = 0;  // bytes of messages in the record
};

}  // namespace vescomm::internal
