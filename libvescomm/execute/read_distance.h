// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace vescomm::internal {

// Finds out whether the cores of a node are near or far. Between cores that share a cache a rank
// reads quickly what another one has just written; between far cores each line comes slowly from
// the other core. There both are several times faster if the writes bypass the caches; between near
// cores that costs up to 1.8 times the time of large calls. A host may move virtual cores at any
// time.
//
// Each rank measures its own reads and publishes the result in a word that its node shares; writers
// look at the words of their readers. A slow read alone proves nothing: a processor may be slow, or
// the bytes may exceed its caches. So a rank with slow reads asks its writers to bypass the caches
// for a few operations, a trial, and finds them far only if it then reads much faster. Later one of
// probe_interval operations is written through the caches, a probe, and compared again.
//
// Zone: per large step, no allocation.
class ReadDistance {
public:
    static constexpr std::uint64_t probe_interval = 64;
    static constexpr int enough = 4;  // operations that a decision takes

    // The word of each local rank; `local` is this one.
    ReadDistance(std::vector<std::atomic<std::uint32_t> *> words, std::size_t local)
        : words_(std::move(words)), local_(local) {}

    // True: a peer is far, and what this rank writes for it in the operation with this slot
    // sequence number is to bypass the caches.
    bool far(std::uint64_t sequence) const noexcept {
        if (is_probe(sequence)) return false;
        for (std::size_t peer = 0; peer < words_.size(); ++peer)
            if (peer != local_ && words_[peer]->load(std::memory_order_relaxed) != 0) return true;
        return false;
    }

    // This rank has read bytes that peers wrote in this operation.
    void observe(std::uint64_t sequence, std::uint64_t bytes, double seconds) noexcept {
        if (sequence != read_.sequence) {
            judge();
            read_ = {.sequence = sequence};
        }
        read_.bytes += bytes;
        read_.fastest =
            std::max(read_.fastest, static_cast<double>(bytes) / std::max(seconds, 1e-9));
    }

private:
    enum class State { near, trial, far };

    // Reads of one operation. A rank that lost its core during a read seems far, and one whose
    // output is new memory: the fastest read counts.
    struct Reads {
        std::uint64_t sequence = 0;
        std::uint64_t bytes = 0;
        double fastest = 0;  // bytes a second; 0: nothing was read
    };
    // Operations of about the same number of bytes: their reads depend on the caches alike.
    struct Size {
        double limit = fast_enough;  // slower reads are followed by a trial
        double cached = 0;  // fastest of the slow operations in a row
        int slow = 0;  // slow operations in a row
    };
    static constexpr std::size_t number_of_sizes = 24;
    // Bytes a second. Near cores of Zen 4 read at 24 to 46 GB/s, some of Intel at 6 to 14.
    static constexpr double fast_enough = 12e9;
    static constexpr double far_ratio = 1.5;  // bypassed reads are faster by this, or more
    static constexpr int max_trial = 64;  // operations in which a trial has to end

    static bool is_probe(std::uint64_t sequence) { return sequence % probe_interval == 0; }
    static std::size_t size_of(std::uint64_t bytes) {
        return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes >> 14)),
                                     number_of_sizes - 1);
    }

    // Looks at the operation that has been measured.
    void judge() noexcept {
        if (read_.fastest == 0) return;
        const std::size_t size = size_of(read_.bytes);
        switch (state_) {
            case State::near:
                return suspect(size);
            case State::trial:
                if (!is_probe(read_.sequence)) compare(size);
                return;
            case State::far:
                if (is_probe(read_.sequence)) return reconsider(size);
                if (size == trial_size_) bypassed_ = read_.fastest;
        }
    }

    void suspect(std::size_t index) noexcept {
        Size &size = sizes_[index];
        if (read_.fastest >= size.limit) {
            size.slow = 0;
            size.limit = std::clamp(read_.fastest / 2, size.limit, fast_enough);
            return;
        }
        size.cached = size.slow == 0 ? read_.fastest : std::max(size.cached, read_.fastest);
        if (++size.slow < enough) return;
        trial_size_ = index;
        bypassed_ = 0;
        compared_ = trial_operations_ = 0;
        enter(State::trial);
    }

    void compare(std::size_t index) noexcept {
        Size &size = sizes_[trial_size_];
        if (index == trial_size_) {
            bypassed_ = std::max(bypassed_, read_.fastest);
            ++compared_;
        }
        if (compared_ == enough) {
            if (bypassed_ > far_ratio * size.cached) return enter(State::far);
            // Only much slower reads are worth another trial.
            size.limit = size.cached / 2;
            enter(State::near);
        } else if (++trial_operations_ == max_trial) {
            enter(State::near);
        }
    }

    // A probe, after this rank was far: the cores may have moved together.
    void reconsider(std::size_t index) noexcept {
        if (read_.fastest >= fast_enough ||
            (index == trial_size_ && far_ratio * read_.fastest >= bypassed_))
            enter(State::near);
    }

    void enter(State state) noexcept {
        state_ = state;
        sizes_[trial_size_].slow = 0;
        words_[local_]->store(state == State::near ? 0 : 1, std::memory_order_relaxed);
    }

    const std::vector<std::atomic<std::uint32_t> *> words_;
    const std::size_t local_;
    Reads read_;
    State state_ = State::near;
    std::array<Size, number_of_sizes> sizes_{};
    // The current trial, or the one that found this rank far.
    std::size_t trial_size_ = 0;
    double bypassed_ = 0;  // bytes a second
    int compared_ = 0;  // operations of this size
    int trial_operations_ = 0;
};

}  // namespace vescomm::internal
