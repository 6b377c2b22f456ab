// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A model of the receiving side of a TCP connection: the rules of transport/tcp_wire.h and
// transport/tcp_inbox.h, implemented without sockets, staging buffers or landings. It consumes
// bytes one by one, so it does not depend on the pieces in which they arrive.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "transport/tcp_wire.h"

namespace vescomm::internal::fuzz {

// One communicator, as one of its peers changes it.
class TcpCommunicatorModel {
public:
    using Signals = std::map<std::array<std::uint32_t, 2>, std::uint64_t>;  // by channel and flag

    TcpCommunicatorModel(MemoryId memory, std::vector<std::byte> bytes)
        : bytes(std::move(bytes)), memory_(memory) {}

    std::vector<std::byte> bytes;  // contents of its one memory
    Signals signals;
    bool open = true;
    bool broken = false;
    bool left = false;  // the peer has said goodbye

    bool takes() const { return open && !broken; }

    bool has_credit(const TcpMessage &message) const {
        const auto found = granted_.find({message.signal.channel, message.credit_flag});
        return message.credit == 0 || (found != granted_.end() && found->second >= message.credit);
    }

    // True if the target range of a message is within the memory.
    bool fits(const TcpMessage &message) const {
        if (message.bytes == 0) return true;
        if (message.memory != memory_) return false;
        return message.kind == TcpKind::batch ||
               (message.bytes <= bytes.size() && message.offset <= bytes.size() - message.bytes);
    }

    // Handles a complete message.
    void receive(const TcpMessage &message, const std::vector<std::byte> &from) {
        if (!takes()) return;
        // Answered by the fabric, which is not part of this model.
        if (message.kind == TcpKind::request_to_send) return;
        // This rank has made no eager puts.
        if (message.kind == TcpKind::acknowledgement) {
            broken = message.value > 0;
            return;
        }
        if (has_credit(message)) apply(message, from);
        else unexpected_.emplace_back(message, from);
    }

    void grant_credit(std::uint32_t channel, std::uint32_t flag, std::uint64_t value) {
        auto &credit = granted_[{channel, flag}];
        credit = std::max(credit, value);
        for (auto at = unexpected_.begin(); at != unexpected_.end() && takes();) {
            if (!has_credit(at->first)) {
                ++at;
                continue;
            }
            const auto [message, from] = std::move(*at);
            at = unexpected_.erase(at);
            apply(message, from);
        }
    }

    // Raises the signals of a message whose bytes are all written.
    void raise(const TcpMessage &message) {
        if (!takes() || message.kind == TcpKind::piece) return;
        raise(message.signal.channel, message.signal.flag, message.value);
        if (message.signature != 0 && message.tag != 0)
            raise(message.signal.channel, tag_flag,
                  (message.value & 0xffffffff00000000) | message.tag);
        if (message.signature != 0)
            raise(message.signal.channel, message.bytes > 0 ? signature_flag : advertised_flag,
                  (message.value & 0xffffffff00000000) | message.signature);
    }

private:
    void apply(const TcpMessage &message, const std::vector<std::byte> &from) {
        broken = broken || !fits(message);
        if (!broken && message.kind == TcpKind::batch) broken = !scatter(from);
        if (broken) return;
        if (message.kind != TcpKind::batch)
            std::copy(from.begin(), from.end(), bytes.begin() + offset_of(message));
        raise(message);
    }

    static std::ptrdiff_t offset_of(const TcpMessage &message) {
        return message.bytes == 0 ? 0 : static_cast<std::ptrdiff_t>(message.offset);
    }

    void raise(std::uint32_t channel, std::uint32_t flag, std::uint64_t value) {
        auto &signal = signals[{channel, flag}];
        signal = std::max(signal, value);
    }

    // Writes all parts or none. Returns false if they are invalid.
    bool scatter(const std::vector<std::byte> &from) {
        std::vector<std::byte> after = bytes;
        for (std::size_t at = 0; at < from.size();) {
            std::uint64_t part[2];
            if (from.size() - at < sizeof part) return false;
            std::memcpy(part, from.data() + at, sizeof part);
            at += sizeof part;
            const auto [offset, size] = part;
            if (size > from.size() - at || size > bytes.size() || offset > bytes.size() - size)
                return false;
            std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), size,
                        after.begin() + static_cast<std::ptrdiff_t>(offset));
            at += size;
        }
        bytes = std::move(after);
        return true;
    }

    const MemoryId memory_;
    Signals granted_;
    std::vector<std::pair<TcpMessage, std::vector<std::byte>>> unexpected_;
};

// The connection of one peer, and the communicators that it shares with this rank.
class TcpConnectionModel {
public:
    // By number of the communicator; only those that contain the peer.
    std::map<std::uint32_t, TcpCommunicatorModel *> communicators;
    bool failed = false;  // the received bytes are not a valid message

    // Handles the next bytes. They go to the memory at once if a put is received directly.
    void deliver(const std::vector<std::byte> &bytes) {
        if (direct_ && !arriving()->takes()) direct_ = false;
        for (const std::byte byte : bytes) {
            if (failed) return;
            take(byte);
        }
    }

    // The communicator of the message that has arrived in part.
    TcpCommunicatorModel *arriving() const {
        if (header_bytes_ < sizeof message_) return nullptr;
        const auto found = communicators.find(message_.context);
        return found == communicators.end() ? nullptr : found->second;
    }
    bool direct() const { return direct_; }

private:
    void take(std::byte byte) {
        if (header_bytes_ < sizeof message_) {
            reinterpret_cast<std::byte *>(&message_)[header_bytes_++] = byte;
            if (header_bytes_ == sizeof message_) begin();
        } else {
            TcpCommunicatorModel *to = arriving();
            if (direct_ && to->takes()) to->bytes[message_.offset + bytes_.size()] = byte;
            bytes_.push_back(byte);
        }
        if (!failed && header_bytes_ == sizeof message_ && bytes_.size() == message_.bytes) end();
    }

    void begin() {
        failed = !is_sound();
        TcpCommunicatorModel *to = arriving();
        if (failed || to == nullptr || !to->takes()) return;
        if (message_.kind == TcpKind::batch || message_.kind == TcpKind::goodbye) return;
        if (message_.bytes == 0 || !to->has_credit(message_)) return;
        direct_ = to->fits(message_);
        to->broken = !direct_;
    }

    void end() {
        if (TcpCommunicatorModel *to = arriving()) {
            if (message_.kind == TcpKind::goodbye) to->left = to->left || to->open;
            else if (direct_) to->raise(message_);
            else to->receive(message_, bytes_);
        }
        header_bytes_ = 0;
        bytes_.clear();
        direct_ = false;
    }

    bool is_sound() const {
        if (message_.bytes > (512 << 10) || message_.tag > 0x7fffffff || message_.credit_flag > 7)
            return false;
        const bool names_signal = message_.signal.channel < (1 << 19) && message_.signal.flag < 8;
        switch (static_cast<std::uint32_t>(message_.kind)) {
            case 1:
                return message_.bytes > 0 && message_.signature == 0;
            case 2:
                return names_signal;
            case 3:
                return names_signal && message_.bytes <= (64 << 10);
            case 5:
                return names_signal && message_.bytes == 0;
            case 4:
            case 6:
                return message_.bytes == 0;
            default:
                return false;
        }
    }

    TcpMessage message_;
    std::size_t header_bytes_ = 0;
    std::vector<std::byte> bytes_;  // bytes of the message so far
    bool direct_ = false;  // bytes are written to the memory as they arrive
};

}  // namespace vescomm::internal::fuzz
