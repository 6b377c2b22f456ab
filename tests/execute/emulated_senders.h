// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank that matches messages, and emulated ranks on other nodes that send to it. Nothing happens
// at the same time: a message is in an eager buffer, or waits behind those that are.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <vector>

#include "execute/match/message_match.h"
#include "execute/match/signature.h"
#include "schedule/send_receive.h"

namespace vescomm::internal::testing_support {

// The flags between the rank and its sources.
class FlagTable final : public Transport {
public:
    std::string_view name() const override { return "flags"; }
    bool maps(int) const noexcept override { return false; }
    bool puts(int) const noexcept override { return true; }
    bool supports(vescomm_memory_kind_t) const noexcept override { return true; }
    void signal(int peer, SignalName signal, std::uint64_t value) noexcept override {
        raised_[key(peer, signal)] = value;
    }
    std::uint64_t signalled(int peer, SignalName signal) const noexcept override {
        const auto found = arrived_.find(key(peer, signal));
        return found == arrived_.end() ? 0 : found->second;
    }

    // A source raises a flag; the value to which the rank has raised one for it.
    void arrive(int source, SignalName signal, std::uint64_t value) {
        arrived_[key(source, signal)] = value;
    }
    std::uint64_t raised(int source, SignalName signal) const {
        const auto found = raised_.find(key(source, signal));
        return found == raised_.end() ? 0 : found->second;
    }

private:
    using Key = std::tuple<int, std::uint32_t, std::uint32_t>;
    static Key key(int peer, SignalName signal) { return {peer, signal.channel, signal.flag}; }

    std::map<Key, std::uint64_t> arrived_, raised_;
};

class OneSlab final : public Mapping {
public:
    explicit OneSlab(std::size_t bytes) : bytes_(bytes) {}
    std::byte *base(int) const noexcept override { return bytes_.data(); }

private:
    mutable std::vector<std::byte> bytes_;
};

class MatchingRank {
public:
    static constexpr std::uint64_t chunk_bytes = 64;

    explicit MatchingRank(int ranks, std::uint64_t copied_limit = MessageMatch::max_copied_bytes)
        : sources_(static_cast<std::size_t>(ranks)),
          slab_(std::make_shared<OneSlab>(EagerPlaces::slots * slot_bytes())),
          match_(places(), copied_limit) {}

    MessageMatch &match() { return match_; }
    int ranks() const { return static_cast<int>(sources_.size()); }

    // The source sends a message of bytes, which are the lower bytes of its number.
    void send(int source, std::int32_t tag, std::uint64_t bytes) {
        Source &its = of(source);
        its.sent.push_back({tag, bytes});
        advance(source);
    }
    // Messages of the source whose first chunk is in an eager buffer or has been read.
    std::uint64_t under_way(int source) const { return of(source).begun; }

    // The next message of the source that is in no eager buffer moves there if it can, and the
    // chunks of the others follow.
    void advance(int source) {
        Source &its = of(source);
        const std::uint64_t first = its.begun < slots ? 0 : its.begun - slots;
        for (std::uint64_t number = first; number < its.begun; ++number) put_chunks(source, number);
        while (its.begun < its.sent.size()) {
            const std::uint64_t number = its.begun;
            if (number >= slots && read(source, number - slots) < chunks(source, number - slots))
                return;
            its.sent[number].put = 0;
            ++its.begun;
            put_chunks(source, number);
        }
    }

    // Starts a receive, and ends it if it has found its message.
    std::unique_ptr<PostedReceive> post(int source, std::int32_t tag) {
        auto receive = std::make_unique<PostedReceive>();
        receive->source = source;
        receive->expected_tag = tag;
        match_.post(*receive);
        return receive;
    }
    // Polls a receive once. True: it has found its message, whose bytes are those that were sent.
    bool poll(PostedReceive &receive) {
        if (!match_.find(receive)) return false;
        const int source = receive.header.source;
        const std::uint64_t number = receive.header.number, bytes = of(source).sent[number].bytes;
        EXPECT_EQ(receive.header.tag, of(source).sent[number].tag);
        std::uint64_t k = 0;
        std::vector<std::byte> contents;
        if (receive.copy != nullptr) {
            k = receive.copy->chunks;
            contents = receive.copy->bytes;
            match_.release(receive);
        }
        for (; k < chunks(source, number); ++k) {
            advance(source);
            EXPECT_GT(of(source).sent[number].put, k);
            contents.insert(contents.end(), chunk(source, number, k),
                            chunk(source, number, k) + bytes_of(source, number, k));
            flags_.signal(source, {channel_of(source, number), read_flag},
                          run(number) << 32 | (k + 1));
        }
        EXPECT_EQ(contents, std::vector<std::byte>(bytes, static_cast<std::byte>(number)));
        for (int each = 0; each < ranks(); ++each) advance(each);
        return true;
    }

private:
    static constexpr std::uint64_t slots = EagerPlaces::slots;
    struct Sent {
        std::int32_t tag = 0;
        std::uint64_t bytes = 0;
        std::uint64_t put = 0;  // chunks
    };
    struct Source {
        std::deque<Sent> sent;
        std::uint64_t begun = 0;
    };

    Source &of(int source) { return sources_[static_cast<std::size_t>(source)]; }
    const Source &of(int source) const { return sources_[static_cast<std::size_t>(source)]; }
    std::uint64_t slot_bytes() const { return 2 * chunk_bytes * sources_.size(); }

    // Rank 0 matches; every rank has a node of its own.
    EagerPlaces places() {
        std::vector<int> nodes(sources_.size());
        std::iota(nodes.begin(), nodes.end(), 0);
        return {.rank = 0,
                .nodes = Nodes::from_numbers(nodes),
                .transports = std::vector<Transport *>(sources_.size(), &flags_),
                .mapping = slab_,
                .slot_bytes = slot_bytes(),
                .chunk_bytes = chunk_bytes,
                .first_channel = 3};
    }

    static std::uint64_t run(std::uint64_t number) { return number / slots + 1; }
    static std::uint32_t slot(std::uint64_t number) {
        return static_cast<std::uint32_t>(number % slots);
    }
    // The channel of the flags that the source raises for the rank, and the rank for the source.
    std::uint32_t channel_from(std::uint64_t number) const {
        return match_.places().channel_for(0) + slot(number);
    }
    std::uint32_t channel_of(int source, std::uint64_t number) const {
        return match_.places().channel_for(source) + slot(number);
    }
    std::uint64_t chunks(int source, std::uint64_t number) const {
        return std::max<std::uint64_t>(
            1, (of(source).sent[number].bytes + chunk_bytes - 1) / chunk_bytes);
    }
    std::uint64_t bytes_of(int source, std::uint64_t number, std::uint64_t k) const {
        return std::min(chunk_bytes, of(source).sent[number].bytes - k * chunk_bytes);
    }
    std::byte *chunk(int source, std::uint64_t number, std::uint64_t k) {
        return slab_->base(0) + slot(number) * slot_bytes() + match_.places().begin(source) +
               k % 2 * chunk_bytes;
    }
    // Chunks of the message that the rank has read.
    std::uint64_t read(int source, std::uint64_t number) const {
        const std::uint64_t word = flags_.raised(source, {channel_of(source, number), read_flag});
        return word >> 32 == run(number) ? static_cast<std::uint32_t>(word) : 0;
    }
    void put_chunks(int source, std::uint64_t number) {
        Sent &sent = of(source).sent[number];
        while (sent.put < chunks(source, number) && sent.put < read(source, number) + 2) {
            std::memset(chunk(source, number, sent.put), static_cast<int>(number & 0xff),
                        bytes_of(source, number, sent.put));
            ++sent.put;
            const std::uint64_t word = run(number) << 32;
            const std::uint32_t channel = channel_from(number);
            if (sent.tag != 0)
                flags_.arrive(source, {channel, tag_flag},
                              word | static_cast<std::uint32_t>(sent.tag));
            const auto bytes = static_cast<std::int64_t>(sent.bytes);
            // A put without bytes, from another node, raises another flag.
            const std::uint32_t flag =
                source == 0 ? signature_flag : signature_flag_for(sent.bytes);
            flags_.arrive(source, {channel, flag},
                          word | Signature::of_message(VESCOMM_U8, bytes).bits());
            flags_.arrive(source, {channel, written_flag}, word | sent.put);
        }
    }

    std::vector<Source> sources_;
    FlagTable flags_;
    std::shared_ptr<OneSlab> slab_;
    MessageMatch match_;
};

}  // namespace vescomm::internal::testing_support
