// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "schedule/problem.h"

namespace vescomm::internal {

// Elements that pass in chunks through chunk slots, which the chunks use in turn. All chunks have
// the same size, except the last one. Chunks are numbered from 0.
class Chunks {
public:
    // Two slots: one is filled while the other is read.
    Chunks(std::int64_t elements, std::int64_t size, std::int64_t slots = 2)
        : elements_(elements), size_(size), slots_(slots) {}

    // Elements of all chunks; of a chunk, and of its slot.
    std::int64_t elements() const { return elements_; }
    std::int64_t size() const { return size_; }
    std::int64_t count() const { return (elements_ + size_ - 1) / size_; }
    std::int64_t begin(std::int64_t k) const { return k * size_; }
    // Elements of chunk k.
    std::int64_t elements(std::int64_t k) const { return std::min(size_, elements_ - begin(k)); }
    // Offset of the slot of chunk k.
    std::int64_t slot(std::int64_t k) const { return k % slots_ * size_; }

private:
    std::int64_t elements_;
    std::int64_t size_;
    std::int64_t slots_;
};

// The size of chunks, in elements, and the chunk slots of each block.
struct ChunkSlots {
    std::int64_t size = 0;  // 0: the staging buffer is too small
    std::int64_t slots = 2;
};

// The chunks of `blocks` blocks that pass within a node through `staging` elements of the staging
// buffer. Between two ranks they have 64 KiB, and 256 KiB in large vectors: small chunks stay in
// the caches of two cores, and several chunk slots let a rank run ahead. More ranks often share
// cores, and then every chunk may cost a switch of processes: they use chunks as large as two slots
// allow.
inline ChunkSlots chunk_slots_on_node(std::int64_t staging, std::int64_t blocks,
                                      const Problem &problem) {
    constexpr std::int64_t max_slots = 16;
    std::int64_t size = staging / (2 * blocks);
    if (problem.ranks() <= 2) {
        const std::int64_t small = std::max<std::int64_t>(1, staging / max_slots);
        size = std::min(size, problem.elements() < 4 * staging ? small : 4 * small);
    }
    if (size == 0) return {};
    return {size, std::min(max_slots, staging / (blocks * size))};
}

// Elements of a chunk: `min`, or a multiple of it if there were many more than `max_chunks` chunks.
// This limits the size of a schedule.
inline std::int64_t chunk_size(std::int64_t elements, std::int64_t min, std::int64_t max_chunks) {
    return (elements / max_chunks / min + 1) * min;
}

// Chunks of a shard that travels between nodes: one chunk is summed while another is sent and a
// third arrives, and a chunk that is summed is still in the cache. Both ends keep the chunks in a
// ring of chunk slots. The receiver releases `freed` slots at a time: a chunk that it has read has
// also left the sender.
class PutChunks : public Chunks {
public:
    static constexpr std::uint32_t ring = 8;
    static constexpr std::uint32_t freed = 4;

    explicit PutChunks(std::int64_t elements)
        : Chunks(elements, chunk_size(elements, min_size, 1024), ring) {}

    // Number of chunks; 1 for an empty shard.
    std::uint32_t number() const {
        return static_cast<std::uint32_t>(std::max<std::int64_t>(1, count()));
    }
    // Elements of all slots.
    std::int64_t capacity() const { return std::min(elements(), ring * size()); }
    // True if the receiver releases slots when it has read this chunk.
    bool releases_after(std::uint32_t chunk) const {
        return (chunk + 1) % freed == 0 && chunk + 1 + ring < number() + freed;
    }
    // Number of chunks that the receiver must have released before this one may be put.
    std::uint32_t released_before(std::uint32_t chunk) const {
        return chunk < ring ? 0 : (chunk - ring + freed) / freed * freed;
    }

private:
    static constexpr std::int64_t min_size = 65'088;  // of 4 bytes: two messages over TCP
};

// Minimum elements of a slice. One more rank that puts a smaller slice costs more than it saves.
inline constexpr std::int64_t min_slice = 2048;

// Number of the `ranks` of a node that should put a slice of `elements`.
inline int slices_for(int ranks, std::int64_t elements) {
    return static_cast<int>(std::clamp<std::int64_t>(elements / min_slice, 1, ranks));
}

// Offset of the n-th of `slices` equal slices.
inline std::int64_t slice_begin(std::int64_t elements, std::int64_t n, std::int64_t slices) {
    return elements * n / slices;
}

// A vector in equal chunks, each of which is cut into equal slices: one for each of the first ranks
// of a node.
class SlicedChunks {
public:
    SlicedChunks() = default;  // no chunks
    SlicedChunks(std::int64_t elements, std::int64_t chunks, int slices)
        : elements_(elements), chunks_(chunks), slices_(slices) {}

    std::int64_t count() const { return chunks_; }
    int slices() const { return slices_; }
    // Offsets in the vector: of chunk k, and of a slice of it.
    std::int64_t begin(std::int64_t k) const { return slice_begin(elements_, k, chunks_); }
    std::int64_t begin(std::int64_t k, int slice) const {
        return begin(k) + slice_begin(begin(k + 1) - begin(k), slice, slices_);
    }
    // Elements of a slice.
    std::int64_t size(std::int64_t k, int slice) const {
        return begin(k, slice + 1) - begin(k, slice);
    }

private:
    std::int64_t elements_ = 0;
    std::int64_t chunks_ = 0;
    int slices_ = 1;
};

}  // namespace vescomm::internal
