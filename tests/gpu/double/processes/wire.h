// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages between a program and gpu_double_run. Both are of one build, and trust one another.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace gpu_double::processes {

class Writer {
public:
    template <typename T>
    void put(const T &value) {
        static_assert(std::is_trivially_copyable_v<T>);
        append(&value, sizeof value);
    }
    void put_bytes(const void *from, std::size_t bytes) {
        put(bytes);
        append(from, bytes);
    }
    std::span<const char> bytes() const { return bytes_; }

private:
    void append(const void *from, std::size_t bytes) {
        const auto *first = static_cast<const char *>(from);
        bytes_.insert(bytes_.end(), first, first + bytes);
    }
    std::vector<char> bytes_;
};

class Reader {
public:
    explicit Reader(std::vector<char> bytes) : bytes_(std::move(bytes)) {}

    template <typename T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value;
        std::memcpy(static_cast<void *>(&value), take(sizeof value), sizeof value);
        return value;
    }
    // Valid as long as this object.
    std::span<const char> get_bytes() {
        const auto bytes = get<std::size_t>();
        return {take(bytes), bytes};
    }

private:
    const char *take(std::size_t bytes) {
        if (bytes > bytes_.size() - at_) throw std::runtime_error("a message ends early");
        at_ += bytes;
        return bytes_.data() + at_ - bytes;
    }
    std::vector<char> bytes_;
    std::size_t at_ = 0;
};

// Both return false when the other side has gone.

inline bool send_all(int socket, const void *from, std::size_t bytes) {
    const auto *next = static_cast<const char *>(from);
    while (bytes > 0) {
        const ssize_t sent = send(socket, next, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        next += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
    return true;
}

inline bool receive_all(int socket, void *to, std::size_t bytes) {
    auto *next = static_cast<char *>(to);
    while (bytes > 0) {
        const ssize_t received = recv(socket, next, bytes, 0);
        if (received < 0 && errno == EINTR) continue;
        if (received <= 0) return false;
        next += received;
        bytes -= static_cast<std::size_t>(received);
    }
    return true;
}

// A message: `code` is the function of a call, or the result of an answer.
struct Header {
    std::uint32_t code = 0;
    std::uint64_t bytes = 0;
};

inline bool send_message(int socket, std::uint32_t code, const Writer &message) {
    const std::span<const char> bytes = message.bytes();
    const Header header{code, bytes.size()};
    return send_all(socket, &header, sizeof header) && send_all(socket, bytes.data(), bytes.size());
}

inline bool receive_message(int socket, std::uint32_t &code, std::vector<char> &bytes) {
    Header header;
    if (!receive_all(socket, &header, sizeof header)) return false;
    code = header.code;
    bytes.resize(header.bytes);
    return receive_all(socket, bytes.data(), bytes.size());
}

}  // namespace gpu_double::processes
