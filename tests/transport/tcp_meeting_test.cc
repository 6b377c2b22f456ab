// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The TCP connections between nodes: the handshake, and a listener that any process can reach.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "base/interrupt.h"
#include "transport/put_ranks.h"
#include "transport/tcp_peer.h"

namespace vescomm::internal {
namespace {

using namespace put_ranks;
using testing_support::connect_to;
using testing_support::TcpPeerByHand;
using testing_support::write_all;

// ---- the handshake ----

const FrameKey key = derived_key("a secret", "a test");

TcpClaim claim_of(std::uint32_t from, std::uint32_t to) {
    TcpClaim claim;
    claim.session.fill(7);
    claim.from = from;
    claim.to = to;
    return claim;
}

template <typename End>
auto read(End &end, std::string_view bytes) {
    return end.read(bytes);
}

TEST(TcpHandshake, BothEndsDeriveTheSameKeys) {
    TcpConnector connector(key, claim_of(3, 1));
    TcpAcceptor acceptor(key, claim_of(0, 1));
    EXPECT_EQ(connector.hello().size(), tcp_hello_bytes);
    EXPECT_EQ(read(acceptor, connector.hello()), TcpAcceptor::State::answered);
    EXPECT_EQ(acceptor.claim().from, 3u);
    EXPECT_EQ(acceptor.answer().size(), tcp_answer_bytes);
    EXPECT_EQ(read(connector, acceptor.answer()), TcpConnector::State::answered);
    EXPECT_EQ(connector.confirm().size(), tcp_confirm_bytes);
    EXPECT_EQ(read(acceptor, connector.confirm()), TcpAcceptor::State::confirmed);
    EXPECT_EQ(acceptor.ready().size(), tcp_ready_bytes);
    EXPECT_EQ(read(connector, acceptor.ready()), TcpConnector::State::ready);
    EXPECT_EQ(connector.keys().to_acceptor, acceptor.keys().to_acceptor);
    EXPECT_EQ(connector.keys().from_acceptor, acceptor.keys().from_acceptor);
    EXPECT_NE(connector.keys().to_acceptor, connector.keys().from_acceptor);
}

TEST(TcpHandshake, WorksByteByByte) {
    TcpConnector connector(key, claim_of(3, 1));
    TcpAcceptor acceptor(key, claim_of(0, 1));
    const auto feed = [](auto &end, const std::string &bytes) {
        for (std::size_t i = 0; i + 1 < bytes.size(); ++i)
            EXPECT_EQ(read(end, bytes.substr(i, 1)), std::decay_t<decltype(end)>::State::waiting);
        return read(end, bytes.substr(bytes.size() - 1));
    };
    EXPECT_EQ(feed(acceptor, connector.hello()), TcpAcceptor::State::answered);
    EXPECT_EQ(feed(connector, acceptor.answer()), TcpConnector::State::answered);
    EXPECT_EQ(feed(acceptor, connector.confirm()), TcpAcceptor::State::confirmed);
    EXPECT_EQ(feed(connector, acceptor.ready()), TcpConnector::State::ready);
}

std::string flip(std::string bytes, std::size_t bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    return bytes;
}

TEST(TcpHandshake, RejectsEveryFlippedBit) {
    for (std::size_t bit = 0; bit < 8 * tcp_hello_bytes; ++bit) {
        TcpConnector connector(key, claim_of(3, 1));
        TcpAcceptor acceptor(key, claim_of(0, 1));
        ASSERT_EQ(read(acceptor, flip(connector.hello(), bit)), TcpAcceptor::State::refused) << bit;
    }
    for (std::size_t bit = 0; bit < 8 * tcp_answer_bytes; ++bit) {
        TcpConnector connector(key, claim_of(3, 1));
        TcpAcceptor acceptor(key, claim_of(0, 1));
        read(acceptor, connector.hello());
        ASSERT_EQ(read(connector, flip(acceptor.answer(), bit)), TcpConnector::State::refused)
            << bit;
    }
    for (std::size_t bit = 0; bit < 8 * tcp_confirm_bytes; ++bit) {
        TcpConnector connector(key, claim_of(3, 1));
        TcpAcceptor acceptor(key, claim_of(0, 1));
        read(acceptor, connector.hello());
        read(connector, acceptor.answer());
        ASSERT_EQ(read(acceptor, flip(connector.confirm(), bit)), TcpAcceptor::State::refused)
            << bit;
        TcpAcceptor again(key, claim_of(0, 1));
        TcpConnector other(key, claim_of(3, 1));
        read(again, other.hello());
        read(other, again.answer());
        read(again, other.confirm());
        ASSERT_EQ(read(other, flip(again.ready(), bit)), TcpConnector::State::refused) << bit;
    }
}

TEST(TcpHandshake, RejectsAnotherKeySessionRankOrEncryption) {
    const TcpClaim right = claim_of(3, 1);
    TcpClaim session = right, rank = right, encrypted = right;
    session.session[0] ^= 1;
    rank.to = 2;
    encrypted.encrypted = true;
    for (const TcpClaim &wrong : {session, rank, encrypted}) {
        TcpConnector connector(key, wrong);
        TcpAcceptor acceptor(key, claim_of(0, 1));
        EXPECT_EQ(read(acceptor, connector.hello()), TcpAcceptor::State::refused);
    }
    TcpConnector unauthenticated(derived_key("another secret", "a test"), right);
    TcpAcceptor acceptor(key, claim_of(0, 1));
    EXPECT_EQ(read(acceptor, unauthenticated.hello()), TcpAcceptor::State::refused);
}

TEST(TcpHandshake, RejectsMessagesRecordedOnAnotherConnection) {
    TcpConnector connector(key, claim_of(3, 1));
    TcpAcceptor first(key, claim_of(0, 1)), second(key, claim_of(0, 1));
    read(first, connector.hello());
    read(connector, first.answer());
    // The recorded hello starts a handshake, but the confirm belongs to another nonce.
    EXPECT_EQ(read(second, connector.hello()), TcpAcceptor::State::answered);
    EXPECT_EQ(read(second, connector.confirm()), TcpAcceptor::State::refused);
    // A reflected message is rejected.
    TcpConnector mirrored(key, claim_of(3, 1));
    EXPECT_EQ(read(mirrored, mirrored.hello().substr(0, tcp_answer_bytes)),
              TcpConnector::State::refused);
}

// ---- the listener ----

// Rank 0 of two, which waits for rank 1 until the test has joined as rank 1.
struct Waiting {
    Waiting() : peer(hub) {
        thread = std::thread([this] {
            LocalControl control(hub, 0);
            try {
                const auto transport = make_inter_node(NetworkKind::tcp, control, failure, {},
                                                       Deadline::after(patience_seconds));
                made = true;
            } catch (const Error &error) {
                why = error.what();
                control.fail(error.status, why);
            }
        });
        peer.exchange_addresses();
    }
    ~Waiting() { thread.join(); }

    std::shared_ptr<LocalControlHub> hub = std::make_shared<LocalControlHub>(2);
    Failure failure;
    std::atomic<bool> made{false};
    std::string why;
    std::thread thread;
    TcpPeerByHand peer;
};

// Local addresses of the listening sockets of this process, as "1.2.3.4:5678".
std::set<std::string> listeners() {
    std::set<std::string> inodes, found;
    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
        if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
    for (const char *name : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
        std::ifstream file(name);
        std::string line;
        std::getline(file, line);
        while (std::getline(file, line)) {
            std::istringstream words(line);
            std::string number, local, remote, state, queues, timer, retries, uid, timeout, inode;
            words >> number >> local >> remote >> state >> queues >> timer >> retries >> uid >>
                timeout >> inode;
            if (state == "0A" && inodes.contains(inode)) found.insert(local);
        }
    }
    return found;
}

TEST(TcpListener, UsesOneInterfaceAndClosesWhenAllAreConnected) {
    const auto before = listeners();
    {
        Waiting waiting;
        auto now = listeners();
        for (const std::string &one : before) now.erase(one);
        ASSERT_EQ(now.size(), 1u);
        EXPECT_TRUE(now.begin()->starts_with("0100007F:")) << *now.begin();  // 127.0.0.1
        ASSERT_TRUE(waiting.peer.join());
        waiting.peer.meet();
        waiting.thread.join();
        waiting.thread = std::thread([] {});
        EXPECT_TRUE(waiting.made) << waiting.why;
        EXPECT_EQ(listeners(), before);
    }
}

TEST(TcpListener, EndsAWaitForAPeerThatTheProgramInterrupts) {
    Waiting waiting;
    set_interrupt([](void *) { return 1; }, nullptr);
    waiting.thread.join();
    waiting.thread = std::thread([] {});
    set_interrupt(nullptr, nullptr);
    EXPECT_FALSE(waiting.made);
    EXPECT_EQ(waiting.why.find("rank 0 was interrupted while it connected over TCP with rank 1"),
              0u)
        << waiting.why;
}

// Opens connections until stopped, and sends on them what an unauthenticated peer might send.
struct Flood {
    Flood(const std::string &host, std::uint16_t port) {
        for (int i = 0; i < 2; ++i)
            threads.emplace_back([=, this] { run(host, port, static_cast<unsigned>(i)); });
    }
    ~Flood() {
        stop = true;
        for (std::thread &thread : threads) thread.join();
    }

    void run(const std::string &host, std::uint16_t port, unsigned seed) {
        std::mt19937 random(seed);
        std::vector<Descriptor> open(200);  // silent, or with a part of a hello
        std::string noise(100'000, '\0');
        for (char &byte : noise) byte = static_cast<char>(random());
        while (!stop) {
            Descriptor socket = connect_to(host, port);
            if (!socket.open()) continue;
            ++connections;
            switch (random() % 8) {
                case 0:
                    write_all(socket.get(), noise.data(), 13);
                    break;
                case 1:
                    write_all(socket.get(), noise.data(), noise.size());
                    break;
                case 2:
                    write_all(socket.get(), "\xd5VSCTCP1 and half a hello", 24);
                    open[random() % open.size()] = std::move(socket);
                    break;
                case 3: {
                    // A complete hello of a peer that does not know the secret.
                    TcpConnector unauthenticated(key, claim_of(1, 0));
                    write_all(socket.get(), unauthenticated.hello().data(),
                              unauthenticated.hello().size());
                    break;
                }
                default:
                    open[random() % open.size()] = std::move(socket);
            }
        }
    }

    std::atomic<bool> stop{false};
    std::atomic<int> connections{0};
    std::vector<std::thread> threads;
};

TEST(TcpListener, AcceptsASlowPeerDuringAFloodOfConnections) {
    Waiting waiting;
    {
        Flood flood(waiting.peer.host(), waiting.peer.port());
        while (flood.connections < 10'000 && !waiting.made) std::this_thread::yield();
        // Each message of the peer comes 40 ms late, as from a distant host. The peer has another
        // address than the flood: loopback has many.
        EXPECT_TRUE(waiting.peer.join([] { poll(nullptr, 0, 40); }, "127.0.0.2"));
        waiting.peer.meet();
    }
    waiting.thread.join();
    waiting.thread = std::thread([] {});
    EXPECT_TRUE(waiting.made) << waiting.why;
}

TEST(TcpListener, AcceptsRanksWhileOthersConnectToEveryListener) {
    for (int round = 0; round < 8; ++round) {
        const auto before = listeners();
        const auto hub = std::make_shared<LocalControlHub>(3);
        std::atomic<int> done{0};
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 3; ++rank)
            threads.emplace_back([&, rank] {
                try {
                    Rank self(NetworkKind::tcp, hub, rank);
                    self.transport->signal((rank + 1) % 3, {0, 0}, 1);
                    self.wait_for((rank + 2) % 3, {0, 0}, 1);
                    self.meet();
                } catch (const Error &error) {
                    ADD_FAILURE() << "rank " << rank << ": " << error.what();
                    LocalControl(hub, rank).fail(error.status, error.what());
                }
                ++done;
            });
        while (done < 3)
            for (const std::string &one : listeners()) {
                if (before.contains(one)) continue;
                const int port = std::stoi(one.substr(one.find(':') + 1), nullptr, 16);
                const Descriptor socket = connect_to("127.0.0.1", static_cast<std::uint16_t>(port));
                write_all(socket.get(), "13 odd bytes!", 13);
            }
        for (std::thread &thread : threads) thread.join();
    }
}

TEST(TcpListener, AcceptsARepeatedAttempt) {
    Waiting waiting;
    // One attempt ends after its hello, the other after its confirm.
    for (const bool confirms : {false, true}) {
        const Descriptor socket = connect_to(waiting.peer.host(), waiting.peer.port());
        TcpConnector connector(waiting.peer.key(), waiting.peer.claim());
        write_all(socket.get(), connector.hello().data(), connector.hello().size());
        if (!confirms) continue;
        const std::string answer = testing_support::read_exactly(socket.get(), tcp_answer_bytes);
        std::string wrong(tcp_confirm_bytes, 'x');
        write_all(socket.get(), wrong.data(), wrong.size());
    }
    EXPECT_TRUE(waiting.peer.join());
    waiting.peer.meet();
    waiting.thread.join();
    waiting.thread = std::thread([] {});
    EXPECT_TRUE(waiting.made) << waiting.why;
}

}  // namespace
}  // namespace vescomm::internal
