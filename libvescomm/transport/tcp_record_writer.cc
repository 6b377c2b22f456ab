// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_record_writer.h"

#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "bootstrap/wire.h"

namespace vescomm::internal {

TcpRecordWriter::TcpRecordWriter(const FrameKey &key)
    : cipher_(RecordCipher::Purpose::seal, key), record_(max_record_bytes) {}

bool TcpRecordWriter::seal(std::span<const iovec> parts) noexcept {
    const iovec second = parts.size() > 1 ? parts[1] : iovec{};
    holds_ = parts[0].iov_len + second.iov_len;
    std::string head;
    put_number(head, static_cast<std::uint32_t>(holds_));
    std::memcpy(record_.data(), head.data(), record_head_bytes);
    if (!cipher_.seal(head, static_cast<const std::byte *>(parts[0].iov_base), parts[0].iov_len,
                      static_cast<const std::byte *>(second.iov_base), second.iov_len,
                      record_.data() + record_head_bytes))
        return false;
    size_ = record_head_bytes + holds_ + RecordCipher::tag_bytes;
    sent_ = 0;
    return true;
}

std::size_t TcpRecordWriter::send(int socket) noexcept {
    while (sent_ < size_) {
        const ssize_t sent =
            ::send(socket, record_.data() + sent_, size_ - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        sent_ += static_cast<std::size_t>(sent);
    }
    size_ = 0;
    return holds_;
}

}  // namespace vescomm::internal
