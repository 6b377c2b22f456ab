// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages and addresses of the UCX transport, without a network.
#include "transport/ucx_wire.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "base/error.h"
#include "transport/received_signals.h"

namespace vescomm::internal {
namespace {

UcxAddress some_address() {
    return {1, 13, 4, 0x0123456789abcdef, std::string("worker\0address", 14)};
}

TEST(UcxWire, SerialisedAddressesAndOffersRoundTrip) {
    const UcxAddress address = parse_ucx_address(serialise(some_address()), 4);
    EXPECT_EQ(address.ucx_major, 1u);
    EXPECT_EQ(address.ucx_minor, 13u);
    EXPECT_EQ(address.token, 0x0123456789abcdefu);
    EXPECT_EQ(address.worker, some_address().worker);

    const Offer offer = parse_offer(serialise(Offer{7, 3, 1ull << 40}), 7, 3);
    EXPECT_EQ(offer.bytes, 1ull << 40);
}

TEST(UcxWire, RejectsDamagedAddressesAndOffers) {
    const std::string address = serialise(some_address());
    const std::string offer = serialise(Offer{7, 3, 4096});
    const auto open_both = [](const std::string &a, const std::string &o) {
        EXPECT_THROW(parse_ucx_address(a, 4), Error);
        EXPECT_THROW(parse_offer(o, 7, 3), Error);
    };
    const std::size_t longest = std::max(address.size(), offer.size());
    for (std::size_t length = 0; length < longest; ++length)
        open_both(address.substr(0, std::min(length, address.size() - 1)),
                  offer.substr(0, std::min(length, offer.size() - 1)));
    for (std::size_t bit = 0; bit < longest * 8; ++bit) {
        std::string bad_address = address, bad_offer = offer;
        char &a = bad_address[bit / 8 % address.size()];
        char &o = bad_offer[bit / 8 % offer.size()];
        a = static_cast<char>(a ^ (1 << bit % 8));
        o = static_cast<char>(o ^ (1 << bit % 8));
        open_both(bad_address, bad_offer);
    }
    open_both(address + "x", offer + "x");
    open_both(offer, address);
}

TEST(UcxWire, RejectsOffersOfAnotherRankOrMemoryByName) {
    try {
        parse_offer(serialise(Offer{7, 3, 4096}), 7, 2);
        FAIL();
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_SYSTEM);
        EXPECT_STREQ(error.what(),
                     "the offer of rank 2 for memory 7 arrived damaged: it is that of rank 3 for "
                     "memory 7; all ranks must run the same version of vescomm");
    }
    EXPECT_THROW(parse_offer(serialise(Offer{7, 3, 4096}), 8, 3), Error);
    EXPECT_THROW(parse_ucx_address(serialise(some_address()), 5), Error);
}

class UcxMessages : public testing::Test {
protected:
    const char *parse(std::size_t payload_bytes) {
        UcxMessage parsed;
        return parse_message(&message, sizeof message, payload_bytes, 4, 99, parsed);
    }

    UcxMessage message = [] {
        UcxMessage good;
        good.kind = MessageKind::put;
        good.from = 3;
        good.token = 99;
        good.signal = {max_channels - 1, flags_per_channel - 1};
        good.bytes = 10;
        return good;
    }();
};

TEST_F(UcxMessages, ValidMessageIsAccepted) {
    EXPECT_EQ(parse(10), nullptr);
}

TEST_F(UcxMessages, EveryFieldIsChecked) {
    const std::pair<std::function<void(UcxMessage &)>, const char *> changes[] = {
        {[](UcxMessage &m) { m.token = 98; }, "it does not know the secret of this job"},
        {[](UcxMessage &m) { m.from = 4; }, "its sender is not a process"},
        {[](UcxMessage &m) { m.from = ~0u; }, "its sender is not a process"},
        {[](UcxMessage &m) { m.bytes = 11; }, "its length is not the one announced"},
        {[](UcxMessage &m) { m.bytes = ~0ull; }, "its length is not the one announced"},
        {[](UcxMessage &m) { m.kind = MessageKind::hello, m.signature = 1; },
         "it carries a signature and raises no signal"},
        {[](UcxMessage &m) { m.tag = max_tag + 1; }, "its tag is out of range"},
        {[](UcxMessage &m) { m.reserved = 1; }, "a reserved field of it is in use"},
        {[](UcxMessage &m) { m.signal.channel = max_channels; }, "its channel is out of range"},
        {[](UcxMessage &m) { m.signal.flag = flags_per_channel; }, "its flag is out of range"},
        {[](UcxMessage &m) { m.kind = MessageKind::hello; }, "it carries bytes that it should not"},
        {[](UcxMessage &m) { m.kind = MessageKind::goodbye; },
         "it carries bytes that it should not"},
        {[](UcxMessage &m) { m.kind = MessageKind{0}; }, "its kind is unknown"},
        {[](UcxMessage &m) { m.kind = MessageKind{77}; }, "its kind is unknown"},
    };
    const UcxMessage good = message;
    for (const auto &[change, why] : changes) {
        message = good;
        change(message);
        ASSERT_NE(parse(10), nullptr) << why;
        EXPECT_STREQ(parse(10), why);
    }
}

// Only a message with the right token may accuse the peer that it names.
TEST_F(UcxMessages, SenderIsIdentifiedOnlyWithTheRightToken) {
    UcxMessage parsed;
    parsed.from = 77;
    const auto sender = [&](std::size_t header_bytes) {
        parsed.from = 77;
        EXPECT_NE(parse_message(&message, header_bytes, 0, 4, 99, parsed), nullptr);
        return parsed.from;
    };
    EXPECT_EQ(sender(sizeof message), 3u) << "its length is wrong, its sender is right";
    EXPECT_EQ(sender(sizeof message - 1), 77u);
    message.from = 4;
    EXPECT_EQ(sender(sizeof message), 77u);
    message.from = 3;
    message.token = 98;
    EXPECT_EQ(sender(sizeof message), 77u);
}

TEST_F(UcxMessages, HeaderOfAnotherLengthIsRejectedUnread) {
    for (std::size_t length = 0; length < 200; ++length) {
        if (length == sizeof message) continue;
        // Allocated with exactly this length, so that the sanitizer detects a read beyond it.
        const auto header = std::make_unique<std::byte[]>(length);
        UcxMessage parsed;
        EXPECT_STREQ(parse_message(header.get(), length, 0, 4, 99, parsed),
                     "its header has the wrong length");
    }
}

TEST_F(UcxMessages, RandomBytesAreNeverAccepted) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 100000; ++i) {
        std::uint64_t words[sizeof message / 8];
        for (std::uint64_t &word : words) word = random();
        std::memcpy(static_cast<void *>(&message), words, sizeof message);
        EXPECT_NE(parse(random() % 100), nullptr);
    }
}

TEST(UcxBatch, IsScatteredToItsOffsets) {
    const std::byte bytes[] = {std::byte{1}, std::byte{2}, std::byte{3}};
    std::vector<std::byte> batch, memory(10);
    append_part(batch, 7, bytes, 3);
    append_part(batch, 0, bytes, 0);
    append_part(batch, 2, bytes, 1);
    append_part(batch, 8, bytes, 2);
    ASSERT_EQ(check_batch(batch.data(), batch.size(), memory.size()), nullptr);
    scatter_batch(batch.data(), batch.size(), memory.data());
    const int expected[] = {0, 0, 1, 0, 0, 0, 0, 1, 1, 2};
    for (std::size_t i = 0; i < memory.size(); ++i)
        EXPECT_EQ(memory[i], static_cast<std::byte>(expected[i])) << i;
    EXPECT_STREQ(check_batch(batch.data(), batch.size(), 9),
                 "a part of it does not fit into the memory");
}

TEST(UcxBatch, RejectsTruncatedBatches) {
    const std::byte bytes[5] = {};
    std::vector<std::byte> batch;
    append_part(batch, 0, bytes, 5);
    const std::size_t first = batch.size();
    append_part(batch, 1, bytes, 4);
    for (std::size_t length = 1; length < batch.size(); ++length) {
        // Allocated with exactly this length, so that the sanitizer detects a read beyond it.
        const auto cut = std::make_unique<std::byte[]>(length);
        std::memcpy(cut.get(), batch.data(), length);
        EXPECT_EQ(check_batch(cut.get(), length, 100) == nullptr, length == first) << length;
    }
}

TEST(UcxBatch, NeverWritesOutsideTheMemory) {
    std::mt19937_64 random(2);
    int taken = 0;
    for (int i = 0; i < 200000; ++i) {
        const std::size_t length = random() % 80;
        const auto batch = std::make_unique<std::byte[]>(length);
        for (std::size_t k = 0; k < length; ++k)
            batch[k] = static_cast<std::byte>(random() % 4 == 0 ? random() % 40 : 0);
        const std::uint64_t capacity = random() % 20;
        const auto memory = std::make_unique<std::byte[]>(capacity);
        if (check_batch(batch.get(), length, capacity) != nullptr) continue;
        scatter_batch(batch.get(), length, memory.get());
        ++taken;
    }
    EXPECT_GT(taken, 1000);
}

TEST(UcxWire, WithinDoesNotOverflow) {
    constexpr std::uint64_t max = ~0ull;
    EXPECT_TRUE(within(0, 0, 0));
    EXPECT_TRUE(within(4, 6, 10));
    EXPECT_FALSE(within(4, 7, 10));
    EXPECT_FALSE(within(11, 0, 10));
    EXPECT_FALSE(within(max, 1, 10));
    EXPECT_FALSE(within(1, max, 10));
    EXPECT_FALSE(within(max, max, max - 1));
    EXPECT_TRUE(within(0, max, max));
}

TEST(UcxSignals, EveryNameHasItsOwnCounter) {
    ReceivedSignals signals;
    const std::uint32_t channels[] = {0,  1,   15,  16,   17,    47,
                                      48, 111, 112, 1000, 99999, max_channels - 1};
    std::uint64_t value = 0;
    for (const std::uint32_t channel : channels)
        for (std::uint32_t flag = 0; flag < flags_per_channel; ++flag) {
            EXPECT_EQ(signals.read({channel, flag}), 0u);
            ASSERT_TRUE(signals.raise({channel, flag}, ++value));
        }
    value = 0;
    for (const std::uint32_t channel : channels)
        for (std::uint32_t flag = 0; flag < flags_per_channel; ++flag)
            EXPECT_EQ(signals.read({channel, flag}), ++value);
    EXPECT_EQ(signals.read({2, 0}), 0u);
    EXPECT_EQ(signals.read({max_channels, 0}), 0u);
    EXPECT_EQ(signals.read({~0u, ~0u}), 0u);
    EXPECT_EQ(signals.read({0, flags_per_channel}), 0u);
}

TEST(UcxSignals, NeverDecrease) {
    ReceivedSignals signals;
    signals.raise({3, 3}, 10);
    signals.raise({3, 3}, 9);
    EXPECT_EQ(signals.read({3, 3}), 10u);
}

TEST(UcxSignals, GrowWhileBeingRead) {
    ReceivedSignals signals;
    constexpr std::uint32_t channels = 20000;
    // written before the raise, read after the signal: checked by ThreadSanitizer
    std::uint64_t published[channels];
    std::thread reader([&] {
        for (std::uint32_t channel = 0; channel < channels; ++channel) {
            while (signals.read({channel, 1}) == 0) std::this_thread::yield();
            EXPECT_EQ(published[channel], channel * 3u);
        }
    });
    for (std::uint32_t channel = 0; channel < channels; ++channel) {
        published[channel] = channel * 3;
        signals.raise({channel, 1}, 1);
    }
    reader.join();
}

}  // namespace
}  // namespace vescomm::internal
