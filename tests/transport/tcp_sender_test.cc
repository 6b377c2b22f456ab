// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The sending side of a data connection over a socket that takes few bytes at a time.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include "transport/tcp_sender.h"

namespace vescomm::internal {
namespace {

class TcpSenderTest : public ::testing::TestWithParam<bool> {
protected:
    TcpSenderTest() {
        int ends[2] = {-1, -1};
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
        near_ = Descriptor(ends[0]);
        far_ = Descriptor(ends[1]);
        const int bytes = 4096;
        setsockopt(near_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        shared_.contexts.emplace(context_.id, &context_);
        shared_.news.reserve(1);
        sender_ = std::make_unique<TcpSender>(shared_, near_.get());
        if (GetParam()) sender_->encrypt(FrameKey{});
    }
    ~TcpSenderTest() override { sender_->close(); }

    TcpQueue &queue() { return context_.queues[1]; }

    // Reads bytes from the socket, and hands over more.
    void drain(std::size_t bytes) {
        std::vector<char> taken(bytes);
        while (recv(far_.get(), taken.data(), bytes, 0) > 0) {
        }
        sender_->unblock();
        sender_->pump();
    }

    Descriptor near_, far_;
    TcpShared shared_;
    Failure failure_;
    TcpContext context_{1, 0, {-1, 0}, failure_, {}};
    std::unique_ptr<TcpSender> sender_;
};

// A rank may stop making progress once its puts have ended, so the signals after them must have
// left.
TEST_P(TcpSenderTest, PutEndsAfterTheSignalsBehindItHaveLeft) {
    for (std::size_t size = 100'000; size < 100'200; ++size) {
        const std::vector<std::byte> source(size);
        std::atomic<std::uint32_t> pending{2};
        std::uint32_t uses = 0;
        for (const std::uint64_t value : {1, 2})
            sender_->send(queue(), {1, source.data(), 1, 0, size, {0, 0}, value, &pending}, &uses);
        for (const std::uint32_t flag : {1u, 2u}) {
            Put signal;
            signal.peer = 1;
            signal.signal = {0, flag};
            signal.value = 1;
            sender_->send(queue(), signal, nullptr);
        }
        ASSERT_TRUE(sender_->waiting()) << "the socket takes everything at once";
        while (pending.load() > 0) {
            ASSERT_TRUE(sender_->waiting());
            drain(size);
        }
        EXPECT_FALSE(sender_->waiting()) << "after puts of " << size << " bytes";
        EXPECT_EQ(uses, 0u);
        while (sender_->waiting()) drain(size);
    }
}

TEST_P(TcpSenderTest, DroppedPutsEndOnce) {
    const std::vector<std::byte> source(100'000);
    std::atomic<std::uint32_t> pending{3};
    std::uint32_t uses = 0;
    for (const std::uint64_t value : {1, 2, 3}) {
        sender_->send(queue(), {1, source.data(), 1, 0, source.size(), {0, 0}, value, &pending},
                      &uses);
        Put signal;
        signal.peer = 1;
        signal.signal = {0, 1};
        signal.value = value;
        sender_->send(queue(), signal, nullptr);
    }
    EXPECT_EQ(pending.load(), 3u);
    sender_->drop(queue());
    EXPECT_EQ(pending.load(), 0u);
    EXPECT_EQ(uses, 0u);
    // The message that was under way arrives completely.
    while (sender_->waiting()) drain(1 << 16);
    EXPECT_FALSE(sender_->failed());
}

INSTANTIATE_TEST_SUITE_P(Records, TcpSenderTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "Encrypted" : "Plain"; });

}  // namespace
}  // namespace vescomm::internal
