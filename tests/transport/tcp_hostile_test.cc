// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The TCP transport against an authenticated peer that sends invalid messages: rank 0 is real, rank
// 1 is a socket.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "transport/put_ranks.h"
#include "transport/tcp_peer.h"

namespace vescomm::internal {
namespace {

using namespace put_ranks;
using testing_support::TcpPeerByHand;

constexpr MemoryId memory = 1;
constexpr std::size_t memory_bytes = 4096;

// Rank 0, which runs in a thread until it fails or receives the stop signal.
struct Victim {
    explicit Victim(std::shared_ptr<LocalControlHub> hub, NetworkKind network = NetworkKind::tcp,
                    double seconds = patience_seconds) {
        thread = std::thread([this, hub, network, seconds] {
            LocalControl control(hub, 0);
            try {
                const auto transport =
                    make_inter_node(network, control, failure, {}, Deadline::after(seconds));
                arena.assign(memory_bytes, std::byte{0});
                transport->offer(memory, arena.data(), arena.size());
                control.all_gather("ready", "", Deadline::after(patience_seconds));
                const Deadline deadline = Deadline::after(patience_seconds);
                while (!failure.broken() && !deadline.expired() &&
                       transport->signalled(1, {7, 7}) == 0)
                    if (!transport->progress()) std::this_thread::yield();
                signalled = transport->signalled(1, {0, 0});
                highest = transport->signalled(1, {max_channels - 1, 0});
            } catch (const Error &error) {
                status = error.status;
                why = error.what();
            }
        });
    }
    ~Victim() { join(); }
    void join() {
        if (thread.joinable()) thread.join();
    }

    Failure failure;
    std::vector<std::byte> arena;
    std::uint64_t signalled = 0, highest = 0;
    vescomm_status_t status = VESCOMM_OK;
    std::string why;
    std::thread thread;
};

// A peer that has joined, and rank 0, which offers a memory.
struct Pair {
    explicit Pair(NetworkKind network = NetworkKind::tcp)
        : hub(std::make_shared<LocalControlHub>(2)),
          victim(hub, network),
          peer(hub, network == NetworkKind::tcp_encrypted) {
        peer.exchange_addresses();
        EXPECT_TRUE(peer.join());
        peer.meet();
        peer.control().all_gather("ready", "", Deadline::after(patience_seconds));
    }

    std::shared_ptr<LocalControlHub> hub;
    Victim victim;
    TcpPeerByHand peer;
};

TcpMessage put_of(std::uint64_t offset, std::uint64_t bytes) {
    TcpMessage message;
    message.memory = memory;
    message.offset = offset;
    message.bytes = bytes;
    message.value = 1;
    return message;
}

// The signal that stops a victim in order.
TcpMessage stop_signal() {
    TcpMessage message;
    message.signal = {7, 7};
    message.value = 1;
    return message;
}

std::vector<std::byte> some(std::size_t bytes) {
    return std::vector<std::byte>(bytes, std::byte{0xee});
}

struct InvalidMessage {
    const char *name;
    const char *why;
    std::function<void(TcpPeerByHand &)> send;
};

void PrintTo(const InvalidMessage &invalid, std::ostream *out) {
    *out << invalid.name;
}

void send_batch(TcpPeerByHand &peer, std::initializer_list<BatchPart> parts,
                std::int64_t more = 0) {
    std::vector<std::byte> bytes;
    for (const BatchPart &part : parts) {
        const auto *head = reinterpret_cast<const std::byte *>(&part);
        bytes.insert(bytes.end(), head, head + sizeof part);
        bytes.resize(bytes.size() + std::min<std::uint64_t>(part.bytes, 8), std::byte{0xee});
    }
    bytes.resize(static_cast<std::size_t>(static_cast<std::int64_t>(bytes.size()) + more));
    TcpMessage message = put_of(0, bytes.size());
    message.kind = TcpKind::batch;
    peer.send(message, bytes);
}

template <typename Change>
auto changed(std::uint64_t bytes, Change change) {
    return [=](TcpPeerByHand &peer) {
        TcpMessage message = put_of(0, bytes);
        change(message);
        peer.send(message, some(bytes));
    };
}

const InvalidMessage invalid_messages[] = {
    {"beyond the end", "do not fit",
     [](TcpPeerByHand &peer) { peer.send(put_of(memory_bytes - 3, 4), some(4)); }},
    {"offset wraps around", "do not fit",
     [](TcpPeerByHand &peer) { peer.send(put_of(~0ull, 4), some(4)); }},
    {"large and beyond the end", "do not fit",
     [](TcpPeerByHand &peer) { peer.send(put_of(0, 300'000), some(300'000)); }},
    {"large, beyond the end, and never complete", "do not fit",
     [](TcpPeerByHand &peer) { peer.send(put_of(0, 300'000), some(100'000)); }},
    {"unknown memory", "not offered", changed(4, [](TcpMessage &m) { m.memory = 999; })},
    {"longer than a message may be", "longer than a message may be",
     [](TcpPeerByHand &peer) { peer.send(put_of(0, max_message_bytes + 1)); }},
    {"length of all ones", "longer than a message may be",
     [](TcpPeerByHand &peer) { peer.send(put_of(0, ~0ull)); }},
    {"channel out of range", "channel is out of range",
     changed(0, [](TcpMessage &m) { m.signal.channel = max_channels; })},
    {"flag out of range", "flag is out of range",
     changed(0, [](TcpMessage &m) { m.signal.flag = flags_per_channel; })},
    {"credit flag out of range", "waits for a flag that is out of range",
     changed(0, [](TcpMessage &m) { m.credit_flag = flags_per_channel; })},
    {"tag", "tag is out of range", changed(0, [](TcpMessage &m) { m.tag = 1u << 31; })},
    {"unknown kind", "kind is unknown", changed(0, [](TcpMessage &m) { m.kind = TcpKind{1000}; })},
    {"kind zero", "kind is unknown", changed(0, [](TcpMessage &m) { m.kind = TcpKind{0}; })},
    {"empty piece", "empty piece", changed(0, [](TcpMessage &m) { m.kind = TcpKind::piece; })},
    {"piece with a signature", "raises no signal",
     changed(4,
             [](TcpMessage &m) {
                 m.kind = TcpKind::piece;
                 m.signature = 5;
             })},
    {"goodbye with bytes", "carries bytes",
     changed(4, [](TcpMessage &m) { m.kind = TcpKind::goodbye; })},
    {"batch that is too long", "too long",
     [](TcpPeerByHand &peer) {
         TcpMessage message = put_of(0, max_batch_bytes + 1);
         message.kind = TcpKind::batch;
         peer.send(message);
     }},
    {"batch beyond the end", "does not fit",
     [](TcpPeerByHand &peer) {
         send_batch(peer, {{0, 4}, {memory_bytes - 3, 4}});
     }},
    {"batch with an offset that wraps around", "does not fit",
     [](TcpPeerByHand &peer) {
         send_batch(peer, {{~0ull, 4}});
     }},
    {"batch with a part that is longer than it", "ends within a part",
     [](TcpPeerByHand &peer) {
         send_batch(peer, {{0, 4}, {0, 5}}, -1);
     }},
    {"batch that ends within a head", "ends within the head",
     [](TcpPeerByHand &peer) {
         send_batch(peer, {{0, 4}, {0, 0}}, -1);
     }},
    {"too much that is never expected", "too much to be kept",
     [](TcpPeerByHand &peer) {
         TcpMessage message = put_of(0, max_message_bytes);
         message.credit = 1;
         for (int i = 0; i < 150; ++i) peer.send(message, some(max_message_bytes));
     }},
    {"acknowledgement for puts that were not made", "more eager bytes than were sent",
     changed(0,
             [](TcpMessage &m) {
                 m.kind = TcpKind::acknowledgement;
                 m.value = 1;
             })},
    {"acknowledgement with bytes", "carries bytes",
     changed(4, [](TcpMessage &m) { m.kind = TcpKind::acknowledgement; })},
    {"request to send with bytes", "carries bytes",
     changed(4, [](TcpMessage &m) { m.kind = TcpKind::request_to_send; })},
    {"request to send of a channel out of range", "channel is out of range",
     changed(0,
             [](TcpMessage &m) {
                 m.kind = TcpKind::request_to_send;
                 m.signal.channel = max_channels;
             })},
    {"hangs up", "lost the connection to rank 1 over TCP",
     [](TcpPeerByHand &peer) { peer.hang_up(); }},
    {"hangs up within a header", "lost the connection to rank 1",
     [](TcpPeerByHand &peer) {
         testing_support::write_all(peer.socket(), "\1\0\0\0\0\0\0", 7);
         peer.hang_up();
     }},
};

class TcpInvalidMessages : public testing::TestWithParam<InvalidMessage> {};

TEST_P(TcpInvalidMessages, FailTheCommunicatorAndWriteNothing) {
    Pair pair;
    GetParam().send(pair.peer);
    pair.victim.join();
    EXPECT_TRUE(pair.victim.failure.broken());
    EXPECT_EQ(pair.victim.failure.status(), VESCOMM_ERROR_PEER_FAILED);
    EXPECT_NE(pair.victim.failure.why().find(GetParam().why), std::string::npos)
        << pair.victim.failure.why();
    EXPECT_EQ(pair.victim.signalled, 0u);
    for (const std::byte byte : pair.victim.arena) ASSERT_EQ(byte, std::byte{0});
}

INSTANTIATE_TEST_SUITE_P(All, TcpInvalidMessages, testing::ValuesIn(invalid_messages));

TEST(TcpHostile, MessagesOfAnUnknownCommunicatorAreDropped) {
    Pair pair;
    for (const std::size_t bytes : {0, 4, 300'000}) {
        TcpMessage message = put_of(0, bytes);
        message.context = 5;
        pair.peer.send(message, some(bytes));
    }
    TcpMessage goodbye;
    goodbye.kind = TcpKind::goodbye;
    goodbye.context = 5;
    pair.peer.send(goodbye);
    pair.peer.send(stop_signal());
    pair.victim.join();
    EXPECT_FALSE(pair.victim.failure.broken()) << pair.victim.failure.why();
    for (const std::byte byte : pair.victim.arena) ASSERT_EQ(byte, std::byte{0});
}

TEST(TcpHostile, HighestChannelIsAccepted) {
    Pair pair;
    TcpMessage message = put_of(0, 0);
    message.signal = {max_channels - 1, 0};
    message.value = ~0ull;
    pair.peer.send(message);
    pair.peer.send(stop_signal());
    pair.victim.join();
    EXPECT_FALSE(pair.victim.failure.broken()) << pair.victim.failure.why();
    EXPECT_EQ(pair.victim.highest, ~0ull);
}

TEST(TcpHostile, AcceptsMessagesByteByByte) {
    Pair pair;
    std::string stream;
    const auto add = [&](const TcpMessage &message, const std::vector<std::byte> &bytes) {
        stream.append(reinterpret_cast<const char *>(&message), sizeof message);
        stream.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
    };
    add(put_of(3, 5), some(5));
    std::vector<std::byte> batch;
    append_part(batch, 100, some(7).data(), 7);
    append_part(batch, 200, some(1).data(), 1);
    TcpMessage message = put_of(0, batch.size());
    message.kind = TcpKind::batch;
    add(message, batch);
    add(stop_signal(), {});
    for (const char byte : stream) {
        testing_support::write_all(pair.peer.socket(), &byte, 1);
        std::this_thread::yield();
    }
    pair.victim.join();
    EXPECT_FALSE(pair.victim.failure.broken()) << pair.victim.failure.why();
    EXPECT_EQ(pair.victim.signalled, 1u);
    for (std::size_t i = 0; i < memory_bytes; ++i) {
        const bool written = (i >= 3 && i < 8) || (i >= 100 && i < 107) || i == 200;
        ASSERT_EQ(pair.victim.arena[i], written ? std::byte{0xee} : std::byte{0}) << i;
    }
}

TEST(TcpHostile, RandomMessagesNeverWriteOutsideOfTheMemory) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937_64 random(seed);
        Pair pair;
        for (int i = 0; i < 50; ++i) {
            TcpMessage message = put_of(random() % 5000, random() % 5000);
            auto *bytes = reinterpret_cast<unsigned char *>(&message);
            for (std::size_t flips = random() % 3; flips > 0; --flips)
                bytes[random() % sizeof message] ^= static_cast<unsigned char>(1 << random() % 8);
            pair.peer.send(message, some(random() % 5000));
        }
        pair.peer.hang_up();
        pair.victim.join();
        EXPECT_TRUE(pair.victim.failure.broken());
    }
}

TEST(TcpHostile, RecordsThatDoNotDecryptEndTheConnection) {
    Pair pair(NetworkKind::tcp_encrypted);
    pair.peer.send(put_of(0, 4), some(200));
    pair.victim.join();
    EXPECT_TRUE(pair.victim.failure.broken());
    EXPECT_NE(pair.victim.failure.why().find("record"), std::string::npos)
        << pair.victim.failure.why();
    for (const std::byte byte : pair.victim.arena) ASSERT_EQ(byte, std::byte{0});
}

TEST(TcpHostile, TimeoutNamesAPeerThatNeverConnects) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, NetworkKind::tcp, 0.3);
    TcpPeerByHand peer(hub);
    peer.exchange_addresses();
    victim.join();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_TIMEOUT);
    EXPECT_NE(victim.why.find("has not connected over TCP with rank 1 in time"), std::string::npos)
        << victim.why;
}

TEST(TcpHostile, DifferentEncryptionIsAMismatch) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub, NetworkKind::tcp);
    TcpPeerByHand peer(hub, true);
    peer.exchange_addresses();
    victim.join();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_MISMATCH);
    EXPECT_NE(victim.why.find("VESCOMM_ENCRYPTION"), std::string::npos) << victim.why;
}

TEST(TcpHostile, DamagedAddressIsRejected) {
    const auto hub = std::make_shared<LocalControlHub>(2);
    Victim victim(hub);
    LocalControl control(hub, 1);
    control.all_gather("tcp addresses", "rubbish", Deadline::after(patience_seconds));
    victim.join();
    EXPECT_EQ(victim.status, VESCOMM_ERROR_SYSTEM);
    EXPECT_NE(victim.why.find("the TCP address of rank 1 arrived damaged"), std::string::npos)
        << victim.why;
}

}  // namespace
}  // namespace vescomm::internal
