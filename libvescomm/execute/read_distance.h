// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
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
// look at the words of their readers. Once a rank has found its peers far, it can measure only
// operations that all ranks write through the caches: one of probe_interval, a probe.
//
// Zone: per large step, no allocation.
class ReadDistance {
public:
    static constexpr std::uint64_t probe_interval = 64;
    static constexpr int enough = 4;  // slow operations in a row

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
        const bool is_far = words_[local_]->load(std::memory_order_relaxed) != 0;
        if (is_far && !is_probe(sequence)) return;
        if (sequence != sequence_) {
            judge();
            sequence_ = sequence;
        }
        fastest_ = std::max(fastest_, static_cast<double>(bytes) / std::max(seconds, 1e-9));
    }

private:
    static bool is_probe(std::uint64_t sequence) { return sequence % probe_interval == 0; }

    // A rank that lost its core during a read seems far, and one whose output is new memory: the
    // fastest read of an operation counts, and several slow operations in a row. Measured on Zen 4:
    // near cores read at 24 to 46 GB/s.
    void judge() noexcept {
        constexpr double slow_bytes_per_second = 12e9;
        const double fastest = std::exchange(fastest_, 0);
        if (fastest == 0) return;
        slow_ = fastest < slow_bytes_per_second ? std::min(slow_ + 1, enough) : 0;
        words_[local_]->store(slow_ == enough ? 1 : 0, std::memory_order_relaxed);
    }

    const std::vector<std::atomic<std::uint32_t> *> words_;
    const std::size_t local_;
    std::uint64_t sequence_ = 0;  // of the operation that is measured
    double fastest_ = 0;  // bytes a second; 0: nothing was read
    int slow_ = 0;  // slow operations in a row
};

}  // namespace vescomm::internal
