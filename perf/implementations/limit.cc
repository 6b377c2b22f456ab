// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The reference on one node. Each rank has a region that all ranks can read and that holds its
// input, except for a shared all_gather_v, whose input is private. A step is a number that only
// rises.
//
//     all_gather_v      copy each other shard into the own region as its rank arrives
//        shared         write the own shard into the node's slab
//     reduce_scatter_v  add the own extent of all regions, in one pass
//     all_reduce        add an equal part of all regions, then copy the parts of other ranks;
//                       for small buffers, every rank adds everything
//     broadcast         copy the root's region
//     all_to_all_v      copy the own shard of each region as its rank arrives
//     send_receive      copy the region of the previous rank
//     barrier           meet
//
// An operation is complete when all readers have finished, so that its buffer may be written again.
//
// Zone: per operation and per byte.
#include "perf/implementations/limit.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "libvescomm/execute/isa.h"
#include "perf/case/collectives.h"
#include "perf/implementations/limit_memory.h"

namespace vescomm::perf {

const limit_kernels_t &fastest_kernels() {
#if defined(__x86_64__)
    const limit_kernels_t *kernels[] = {&limit_kernels_baseline, &limit_kernels_x86_64_v3,
                                        &limit_kernels_x86_64_v4};
    return *kernels[internal::supported_isas() - 1];
#else
    return limit_kernels_baseline;
#endif
}

namespace {

// From this size on, the memory touched by all ranks does not fit into the last-level cache, and
// streaming stores are faster (16 MiB for each of two ranks, on 32 MiB of L3). Below they are
// slower.
constexpr std::int64_t stream_bytes = std::int64_t{24} << 20;
// Up to this size every rank adds everything, which saves a wait.
constexpr std::int64_t add_alone_bytes = 16384;
// Elements whose sums stay in the first-level cache until they are stored.
constexpr std::int64_t chunk = 2048;

class Limit final : public Implementation {
public:
    explicit Limit(const Worker &worker)
        : memory_(worker), rank_(worker.rank), ranks_(worker.ranks), kernels_(fastest_kernels()) {}

    std::string version() const override {
        return "copies and sums in shared memory, and counters";
    }

    Costs prepare(const Case &what) override {
        const Collective &collective = find_collective(what.collective);
        if (static_cast<std::size_t>(bytes_with_input(what)) > memory_.region_bytes())
            throw std::runtime_error("the region of a rank is too small");
        if (collective.reduces() && what.type != "f32" && what.type != "bf16")
            throw Unsupported("limit adds only f32 and bf16");
        if (what.op != "none" && what.op != "sum" && what.op != "avg")
            throw Unsupported("limit has only sums and averages");
        if (collective.name == "all_gather_v")
            act_ = what.shared ? &Limit::gather_shared : &Limit::gather;
        else if (collective.name == "reduce_scatter_v") act_ = &Limit::reduce_scatter;
        else if (collective.name == "all_reduce") act_ = &Limit::all_reduce;
        else if (collective.name == "broadcast") act_ = &Limit::broadcast;
        else if (collective.name == "all_to_all_v") act_ = &Limit::all_to_all;
        else if (collective.name == "send_receive") act_ = &Limit::send_receive;
        else if (collective.name == "barrier") act_ = &Limit::barrier;
        else throw Unsupported("limit has no " + what.collective);
        what_ = what;
        bytes_ = find_type(what.type).bytes();
        scale_ = what.op == "avg" ? 1.0F / static_cast<float>(ranks_) : 1.0F;
        const Extent mine = collective.input(what, rank_);
        const Extent theirs = collective.output(what, rank_);
        // Private memory holds the source of a shared gather, or a result that is not in place.
        const std::int64_t private_elements = what.shared ? mine.elements() : theirs.elements();
        const bool is_private = what.shared || !collective.in_place;
        const bool moves_apart = is_private && !collective.reduces();
        streams_ = what.bytes() * (what.shared   ? 2
                                   : moves_apart ? 2 * ranks_
                                                 : ranks_) >
                   stream_bytes;
        // An output of f32 may have larger elements than the input.
        const std::int64_t element = std::max<std::int64_t>(bytes_, sizeof(float));
        private_.assign(is_private ? static_cast<std::size_t>(private_elements * element) + 1 : 0,
                        std::byte{});
        std::byte *region = memory_.region(rank_);
        input_ = what.shared ? private_.data() : region + mine.begin * bytes_;
        output_ = what.shared  ? memory_.slab()
                  : is_private ? private_.data()
                               : region + theirs.begin * bytes_;
        regions_.clear();
        for (int rank = 0; rank < ranks_; ++rank) regions_.push_back(memory_.region(rank));
        sources_.assign(regions_.begin(), regions_.end());
        return {};
    }

    std::byte *input() override { return input_; }
    std::byte *output() override { return output_; }
    void start() override { (this->*act_)(); }
    void wait() override {}
    void settle() override {
        if (what_.shared) memory_.release(gathers_);
    }
    void end() override { private_ = {}; }
    void meet() override { barrier(); }

private:
    void copy(std::byte *to, const std::byte *from, std::int64_t bytes) {
        if (streams_) kernels_.stream(to, from, static_cast<std::size_t>(bytes));
        else std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }

    void gather() {
        memory_.arrive(++step_);
        for (int i = 1; i < ranks_; ++i) {
            const int peer = (rank_ + i) % ranks_;
            memory_.await(peer, step_);
            const std::int64_t at = what_.cuts[peer] * bytes_;
            copy(regions_[rank_] + at, regions_[peer] + at, what_.shard(peer) * bytes_);
        }
        barrier();
    }

    void gather_shared() {
        memory_.release(gathers_);
        memory_.await_released(gathers_);
        copy(memory_.slab() + what_.cuts[rank_] * bytes_, private_.data(),
             what_.shard(rank_) * bytes_);
        ++gathers_;
        barrier();
    }

    // Adds elements [first, first + count) of all regions, chunk by chunk.
    template <typename Store>
    void sum(Extent extent, Store &&store) {
        alignas(64) float sums[chunk];
        for (std::int64_t first = extent.begin; first < extent.end; first += chunk) {
            const auto count = static_cast<std::size_t>(std::min(chunk, extent.end - first));
            const auto at = static_cast<std::size_t>(first);
            if (what_.type == "f32")
                kernels_.sum_f32(sums, sources_.data(), ranks_, at, count, scale_);
            else kernels_.sum_bf16(sums, sources_.data(), ranks_, at, count, scale_);
            store(first - extent.begin, sums, count);
        }
    }

    // Stores sums as elements of a type, the first at `to`.
    auto store_as(const std::string &type, std::byte *to) {
        return [this, to, wide = type == "f32"](std::int64_t at, const float *sums,
                                                std::size_t count) {
            if (wide) {
                copy(to + at * 4, reinterpret_cast<const std::byte *>(sums),
                     static_cast<std::int64_t>(count * 4));
            } else {
                kernels_.to_bf16(reinterpret_cast<unsigned short *>(to) + at, sums, count);
            }
        };
    }

    void reduce_scatter() {
        barrier();
        sum({what_.cuts[rank_], what_.cuts[rank_ + 1]},
            store_as(what_.output_type, private_.data()));
        barrier();
    }

    void all_reduce() {
        barrier();
        if (what_.bytes() <= add_alone_bytes) {
            alignas(64) std::byte all[add_alone_bytes];
            sum({0, what_.elements()}, store_as(what_.type, all));
            barrier();
            std::memcpy(regions_[rank_], all, static_cast<std::size_t>(what_.bytes()));
            return;
        }
        // No other rank reads this rank's part of this rank's region, so the sum may go there.
        const Extent mine = part(rank_);
        sum(mine, store_as(what_.type, regions_[rank_] + mine.begin * bytes_));
        memory_.arrive(++step_);
        for (int i = 1; i < ranks_; ++i) {
            const int peer = (rank_ + i) % ranks_;
            memory_.await(peer, step_);
            const Extent theirs = part(peer);
            copy(regions_[rank_] + theirs.begin * bytes_, regions_[peer] + theirs.begin * bytes_,
                 theirs.elements() * bytes_);
        }
        barrier();
    }

    // Returns the part of a rank. Parts are equal, up to a cache line, and aligned to cache lines.
    Extent part(int rank) const {
        const std::int64_t lines = (what_.elements() * bytes_ + 63) / 64;
        const auto edge = [&](int k) {
            return std::min(lines * k / ranks_ * 64 / bytes_, what_.elements());
        };
        return {edge(rank), edge(rank + 1)};
    }

    void broadcast() {
        step_ += 2;
        if (rank_ == what_.root) {
            memory_.arrive(step_ - 1);
            memory_.await_all(step_);
        } else {
            memory_.await(what_.root, step_ - 1);
            copy(regions_[rank_], regions_[what_.root], what_.bytes());
        }
        memory_.arrive(step_);
    }

    void all_to_all() {
        const std::int64_t bytes = what_.shard(rank_) * bytes_;
        memory_.arrive(++step_);
        for (int i = 0; i < ranks_; ++i) {
            const int peer = (rank_ + i) % ranks_;
            memory_.await(peer, step_);
            copy(private_.data() + peer * bytes, regions_[peer] + what_.cuts[rank_] * bytes_,
                 bytes);
        }
        barrier();
    }

    void send_receive() {
        const int previous = what_.previous(rank_);
        step_ += 2;
        memory_.arrive(step_ - 1);
        memory_.await(previous, step_ - 1);
        copy(private_.data(), regions_[previous], what_.message(previous) * bytes_);
        memory_.arrive(step_);
        memory_.await(what_.next(rank_), step_);
    }

    void barrier() {
        memory_.arrive(++step_);
        memory_.await_all(step_);
    }

    LimitMemory memory_;
    int rank_;
    int ranks_;
    const limit_kernels_t &kernels_;
    Case what_;
    void (Limit::*act_)() = nullptr;
    std::int64_t bytes_ = 0;  // of an element
    float scale_ = 1;
    bool streams_ = false;
    std::vector<std::byte> private_;
    std::vector<std::byte *> regions_;
    std::vector<const void *> sources_;  // the regions, as the kernels take them
    std::byte *input_ = nullptr;
    std::byte *output_ = nullptr;
    std::uint64_t step_ = 0;
    std::uint64_t gathers_ = 0;
};

}  // namespace

std::unique_ptr<Implementation> make_limit(const Worker &worker) {
    if (!worker.address.empty()) return make_limit_between_hosts(worker);
    return std::make_unique<Limit>(worker);
}

}  // namespace vescomm::perf
