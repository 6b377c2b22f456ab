// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The receiving direction of a data connection (transport/tcp_receiver.h, transport/tcp_inbox.h)
// over a socket whose other end is in this file: several communicators, with and without
// encryption, and bytes that arrive in pieces of any size.
//
//     byte 0    encrypted or not
//     byte 1    the size of the pieces in which bytes arrive
//     byte 2    the size of records
//     the rest  a script: messages that are valid unless it changes a field, credits that this rank
//               grants, communicators that fail or end
//
// Invariants, after every piece: memory, signals, goodbyes and failures equal those of a model
// (tcp_model.h) that does not depend on pieces; nothing outside the offered memory is written; a
// communicator that failed or ended is not changed; a communicator whose signals rose has news; a
// memory is in use exactly while a put arrives in it; a record that was changed in transit is not
// used.
#include "transport/tcp_receiver.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

#include <deque>
#include <iterator>
#include <optional>

#include "bootstrap/wire.h"
#include "fuzz/fuzz.h"
#include "fuzz/tcp_communicator.h"
#include "transport/tcp_segment.h"

namespace {

using namespace vescomm::internal;
using namespace fuzz;

constexpr int peer_process = 4;
constexpr std::uint32_t first_context = 5;
// The minimum that the receiver reads beyond a put.
constexpr std::size_t staging_bytes = 4096;
constexpr FrameKey record_key{4, 5, 6};

class Script {
public:
    explicit Script(Input input) : input_(input) {
        int ends[2];
        require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0,
                "there are sockets");
        own_ = Descriptor(ends[0]);
        peer_ = Descriptor(ends[1]);
        shared_.staging.resize(staging_bytes);
        shared_.news.reserve(std::size(communicators_));
        for (TcpCommunicator &each : communicators_) {
            shared_.contexts[each.context.id] = &each.context;
            if (each.peer >= 0) model_.communicators[each.context.id] = &each.model;
        }
        if (input_.below(2) == 1) {
            receiver_.encrypt(record_key);
            cipher_.emplace(RecordCipher::Purpose::seal, record_key);
        }
        step_ = size(input_.byte());
        record_bytes_ = std::min<std::size_t>(
            size(input_.byte()), max_record_bytes - record_head_bytes - RecordCipher::tag_bytes);
    }

    void run() {
        while (!input_.empty() && !failed_) {
            switch (input_.below(8)) {
                case 0:
                    grant_credit();
                    break;
                case 1:
                    end_one();
                    break;
                case 2:
                    // Arbitrary bytes.
                    append(input_.text());
                    break;
                default:
                    append_message();
                    break;
            }
            seal();
            // Some of the last bytes are held back and arrive with the next ones.
            deliver(outgoing_.size() -
                    std::min<std::size_t>(outgoing_.size(), size(input_.byte()) - 1));
        }
        deliver(outgoing_.size());
        check_end();
    }

private:
    // A size from one byte: every size from 1 to 200, then larger ones, some of which exceed the
    // memory or the staging buffer.
    static std::size_t size(std::uint8_t byte) {
        if (byte < 200) return byte + std::size_t{1};
        if (byte < 250) return 200 + std::size_t{60} * (byte - 199);
        constexpr std::size_t large[] = {4000, 5000, 8192, 9000, 20'000, 70'000};
        return large[byte - 250];
    }

    TcpCommunicator &communicator() { return communicators_[input_.below(3)]; }

    // ---- the peer ----

    void append(std::string_view bytes) {
        const auto *first = reinterpret_cast<const std::byte *>(bytes.data());
        plain_.insert(plain_.end(), first, first + bytes.size());
    }

    Bytes payload_of(const TcpMessage &message) {
        Bytes bytes;
        if (message.kind == TcpKind::batch) {
            for (std::size_t i = 0, parts = input_.below(3); i < parts; ++i) {
                const Bytes part(size(input_.byte()) - 1, std::byte{input_.byte()});
                append_part(bytes, input_.number<std::uint16_t>(), part.data(), part.size());
            }
        } else if (message.kind != TcpKind::goodbye) {
            bytes.resize(size(input_.byte()) - 1);
            const std::uint8_t first = input_.byte();
            for (std::size_t i = 0; i < bytes.size(); ++i)
                bytes[i] = static_cast<std::byte>(first + 7 * i);
        }
        return bytes;
    }

    void append_message() {
        TcpMessage message;
        const std::uint8_t what = input_.byte(), changes = input_.byte();
        message.kind = static_cast<TcpKind>(1 + what % 4);
        message.context = first_context + what / 4 % 4;
        Bytes payload = payload_of(message);
        message.memory = payload.empty() ? 0 : offered_memory;
        message.bytes = payload.size();
        if (message.kind != TcpKind::batch) message.offset = input_.number<std::uint16_t>();
        message.signal = {static_cast<std::uint32_t>(input_.below(channels)),
                          static_cast<std::uint32_t>(input_.below(4))};
        message.value = input_.byte();
        if ((what & 0x10) != 0) message.credit = input_.byte();
        if ((what & 0x20) != 0) message.signature = input_.byte();
        if ((what & 0x40) != 0) message.value <<= 32;
        if ((what & 0x80) != 0) message.tag = input_.number<std::uint32_t>();
        if ((changes & 1) != 0) message.memory = input_.byte();
        if ((changes & 2) != 0) message.signal.channel = input_.number<std::uint32_t>();
        if ((changes & 4) != 0) message.signal.flag = input_.byte();
        if ((changes & 8) != 0) message.offset = input_.number<std::uint64_t>();
        if ((changes & 16) != 0) message.bytes = input_.number<std::uint64_t>();
        if ((changes & 32) != 0) message.credit_flag = input_.byte();
        if ((changes & 64) != 0) message.kind = static_cast<TcpKind>(input_.byte());
        if ((changes & 128) != 0 && !payload.empty())
            payload[input_.byte() % payload.size()] ^= std::byte{input_.byte()};
        append({reinterpret_cast<const char *>(&message), sizeof message});
        plain_.insert(plain_.end(), payload.begin(), payload.end());
    }

    // Moves all bytes to outgoing_, in records if the connection is encrypted.
    void seal() {
        if (!cipher_) {
            outgoing_.insert(outgoing_.end(), plain_.begin(), plain_.end());
            plain_.clear();
        }
        while (!plain_.empty()) {
            const std::size_t some = std::min(plain_.size(), record_bytes_);
            const auto end = plain_.begin() + static_cast<std::ptrdiff_t>(some);
            std::string head;
            put_number(head, static_cast<std::uint32_t>(some));
            Bytes sealed(record_head_bytes + some + RecordCipher::tag_bytes);
            std::memcpy(sealed.data(), head.data(), head.size());
            require(cipher_->seal(head, plain_.data(), some, nullptr, 0,
                                  sealed.data() + record_head_bytes),
                    "a record is sealed");
            records_.push_back({Bytes(plain_.begin(), end), sealed.size()});
            plain_.erase(plain_.begin(), end);
            if (to_damage_ > 0 && --to_damage_ == 0) {
                const std::size_t at = input_.byte() % sealed.size();
                sealed[at] ^= std::byte{1};
                records_.back().damaged = at < record_head_bytes ? Damage::length : Damage::bytes;
            }
            outgoing_.insert(outgoing_.end(), sealed.begin(), sealed.end());
        }
    }

    // ---- arrivals ----

    // Delivers the first `count` outgoing bytes in pieces, few enough that no input takes long.
    void deliver(std::size_t count) {
        const std::size_t step = std::max(step_, count / 64);
        std::size_t sent = 0;
        while (sent < count && !failed_) {
            const ssize_t written = send(peer_.get(), outgoing_.data() + sent,
                                         std::min(step, count - sent), MSG_NOSIGNAL);
            require(written > 0, "a socket that was read takes bytes");
            const auto first = outgoing_.begin() + static_cast<std::ptrdiff_t>(sent);
            sent += static_cast<std::size_t>(written);
            read(Bytes(first, first + written));
        }
        outgoing_.erase(outgoing_.begin(), outgoing_.begin() + static_cast<std::ptrdiff_t>(sent));
    }

    void read(const Bytes &arrived) {
        for (TcpCommunicator &each : communicators_) each.context.has_news = false;
        shared_.news.clear();
        const auto before = signals();
        bool moved = false;
        auto state = TcpReceiver::State::more;
        while (state == TcpReceiver::State::more) state = receiver_.read(own_.get(), moved);
        require(moved, "received bytes are read");
        failed_ = state == TcpReceiver::State::failed;
        int left = 0;
        require(failed_ || (ioctl(own_.get(), FIONREAD, &left) == 0 && left == 0),
                "a socket that is drained has no bytes");
        update_model(arrived);
        check(before);
    }

    // A record counts when it has arrived completely.
    void update_model(const Bytes &arrived) {
        if (!cipher_) model_.deliver(arrived);
        arrived_ += arrived.size();
        while (!records_.empty() && arrived_ >= records_.front().encoded_bytes &&
               records_.front().damaged == Damage::none) {
            model_.deliver(records_.front().plain);
            arrived_ -= records_.front().encoded_bytes;
            records_.pop_front();
        }
        const Damage damaged = records_.empty() ? Damage::none : records_.front().damaged;
        const bool detected =
            damaged == Damage::bytes && arrived_ >= records_.front().encoded_bytes;
        require(failed_ || !(model_.failed || detected),
                "invalid or changed bytes end the connection");
        // A changed length is detected sooner or later.
        require(!failed_ || model_.failed || detected || damaged == Damage::length,
                "a connection with valid messages does not end");
    }

    std::vector<TcpCommunicatorModel::Signals> signals() const {
        std::vector<TcpCommunicatorModel::Signals> all;
        for (const TcpCommunicator &each : communicators_) all.push_back(each.model.signals);
        return all;
    }

    void check(const std::vector<TcpCommunicatorModel::Signals> &before) {
        if (failed_) require_sentence(receiver_.why());
        for (std::size_t i = 0; i < std::size(communicators_); ++i) {
            TcpCommunicator &each = communicators_[i];
            each.check();
            require(each.model.signals == before[i] || each.context.has_news,
                    "a communicator whose signals rose has news");
            require(
                std::ranges::count(shared_.news, &each.context) == (each.context.has_news ? 1 : 0),
                "news are noted once");
            if (each.model.broken) continue;  // the next read drops the rest of the message
            const bool arriving = each.model.open && model_.arriving() == &each.model;
            if (!failed_)
                require(receiver_.receiving(each.context) == arriving,
                        "the receiver reports the communicator of the arriving message");
            require(each.context.memories.find(offered_memory)->uses ==
                        (arriving && model_.direct() ? 1u : 0u),
                    "a memory is in use while a put arrives in it");
        }
    }

    // ---- this rank ----

    void grant_credit() {
        TcpCommunicator &which = communicator();
        const auto channel = static_cast<std::uint32_t>(input_.below(channels));
        const auto flag = static_cast<std::uint32_t>(input_.below(2));
        const std::uint64_t value = input_.byte();
        if (which.peer < 0 || !which.model.open) return;
        which.context.inbox.grant_credit(which.peer, {channel, flag}, value);
        which.model.grant_credit(channel, flag, value);
        which.check();
    }

    // A communicator fails or ends, or a later record is damaged.
    void end_one() {
        TcpCommunicator &which = communicator();
        const std::size_t what = input_.below(3);
        if (what == 0) {
            which.failure.set(VESCOMM_ERROR_ABORTED, "enough");
            which.model.broken = true;
        } else if (what == 1) {
            receiver_.give_up(which.context);
            shared_.contexts.erase(which.context.id);
            which.model.open = false;
        } else if (to_damage_ == 0) {
            to_damage_ = 1 + input_.below(4);
        }
        which.check();
    }

    void check_end() {
        peer_ = Descriptor();
        bool moved = false;
        auto state = TcpReceiver::State::more;
        if (!failed_) {
            while (state == TcpReceiver::State::more) state = receiver_.read(own_.get(), moved);
            require(state == TcpReceiver::State::failed && receiver_.why() == "it was closed",
                    "the end of a connection is detected");
        }
        for (TcpCommunicator &each : communicators_) {
            each.check();
            receiver_.give_up(each.context);
            require(!receiver_.receiving(each.context) &&
                        each.context.memories.find(offered_memory)->uses == 0,
                    "a dropped put leaves no memory in use");
        }
    }

    enum class Damage { none, length, bytes };
    struct Record {
        Bytes plain;
        std::size_t encoded_bytes;
        Damage damaged = Damage::none;
    };

    Input input_;
    Descriptor own_, peer_;
    TcpShared shared_;
    TcpCommunicator communicators_[3] = {
        {first_context, 0, {-1, peer_process, 3}, peer_process},
        {first_context + 1, 2, {peer_process, 3, -1}, peer_process},
        {first_context + 2, 1, {3, -1}, peer_process}};
    TcpReceiver receiver_{shared_, peer_process};
    TcpConnectionModel model_;
    std::optional<RecordCipher> cipher_;
    std::size_t step_ = 1, record_bytes_ = 1;
    std::size_t to_damage_ = 0;  // records until the one that is damaged; 0: none
    Bytes plain_, outgoing_;  // bytes to be encrypted, and bytes to be sent
    std::deque<Record> records_;  // records that the model has not received
    std::size_t arrived_ = 0;  // received bytes of those records
    bool failed_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    Script(Input(view(data, size))).run();
    return 0;
}

std::vector<Seed> vescomm::internal::fuzz::seeds() {
    // A message: 3, what (kind - 1, communicator * 4, 16 eager, 32 signature, 64 a large value, 128
    // tag),
    // changes, payload (its size + 1, its first byte), offset, channel, flag, value; then the
    // number of bytes that are held back.
    const auto message = [](int what, int changes, int size, int offset, const std::string &more) {
        std::string bytes{'\3', static_cast<char>(what), static_cast<char>(changes),
                          static_cast<char>(size), '\1'};
        if (what % 4 == 3) bytes.resize(3);
        bytes += static_cast<char>(offset);
        return bytes + '\0' + more;
    };
    const std::string signal("\1\2\7", 3), all("\0", 1);
    const std::string put = message(1, 0, 40, 3, signal), large = message(1, 0, 205, 9, signal);
    const std::string other = message(5, 0, 20, 9, signal), piece = message(0, 0, 220, 0, signal);
    const std::string eager = message(0x11, 0, 8, 0, signal + "\4");
    const std::string expect("\0\0\1\0\5", 5);
    // A batch of two parts.
    const std::string batch = std::string("\3\2\0\2\5a\0\0\5b\x10\0", 12) + signal;
    const std::string goodbye = message(3, 0, 0, 0, signal);
    // The kind of a goodbye, which has no payload, is changed.
    const std::string request = message(3, 64, 0, 0, signal + "\5");
    const std::string acknowledgement = message(3, 64, 0, 0, signal + "\6");
    std::vector<Seed> seeds;
    const auto add = [&](const char *name, std::string_view head, const std::string &script) {
        seeds.push_back({name, std::string(head) + script});
    };
    const std::string_view plain("\0\xc7\xff", 3), bytewise("\0\0\xff", 3);
    const std::string_view sealed("\1\x20\x3f", 3), large_records("\1\xff\xff", 3);
    for (const auto &[kind, head] : {std::pair{"", plain},
                                     {"-bytewise", bytewise},
                                     {"-sealed", sealed},
                                     {"-sealed-large", large_records}}) {
        const auto name = [&, kind = kind](const char *what) { return std::string(what) + kind; };
        add(name("puts").c_str(), head, put + all + large + all + other + all);
        add(name("held-back").c_str(), head, put + "\x30" + large + "\xc8" + other + "\x50");
        add(name("eager").c_str(), head, eager + all + put + all + expect + all);
        add(name("eager-arriving").c_str(), head, eager + "\4" + expect + all);
        add(name("batch").c_str(), head, batch + all + batch + "\x08");
        add(name("goodbye").c_str(), head, put + all + goodbye + all);
        add(name("request").c_str(), head, request + all + expect + all + put + all);
        add(name("acknowledgement").c_str(), head, put + all + acknowledgement + all);
        add(name("pieces").c_str(), head, piece + all + put + all);
        add(name("breaks-arriving").c_str(), head,
            large + "\x80" + std::string("\1\0\0\0", 4) + put + all);
        add(name("ends-arriving").c_str(), head,
            large + "\x80" + std::string("\1\0\1\0", 4) + put + all);
    }
    add("put-too-far", plain, message(9, 8, 4, 0, signal + std::string(8, '\xff')) + all);
    add("put-to-no-memory", plain, message(1, 1, 4, 0, signal + "\x09") + all + put + all);
    add("signature", plain, message(0x61, 0, 4, 0, signal + "\x09") + all);
    add("tag", plain, message(0xe1, 0, 4, 0, signal + "\x09" + std::string("\5\0\0\0", 4)) + all);
    add("tag-too-large", plain,
        message(0xe1, 0, 4, 0, signal + "\x09" + std::string("\5\0\0\x80", 4)) + all);
    add("no-member", plain, message(9, 0, 4, 0, signal) + all + put + all);
    add("not-open", plain, message(13, 0, 4, 0, signal) + all + put + all);
    add("text", plain, std::string("\2\x40", 2) + std::string(64, 'x') + all);
    add("damaged", sealed, std::string("\1\0\2\1\0", 5) + put + "\x30" + all + put + all);
    add("damaged-length", sealed, std::string("\1\0\2\0\0", 5) + put + "\2" + all + put + all);
    return seeds;
}
