// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The yardstick between hosts: what plain TCP carries. Every rank sends what others need straight
// to them, all at once, and receives it where it belongs.
//
//     all_gather_v      to each other one the own shard
//     reduce_scatter_v  to each other one its shard of the own buffer; sums follow what arrives
//     all_reduce        the same with equal parts, then to each other one the own part; or, where
//                       that takes longer, everything to everyone
//     barrier           a byte to each other one
//
// Equal shards cross the network as often as they must and no more.
//
// Zone: per operation and per byte.
#include <algorithm>
#include <vector>

#include "perf/case/collectives.h"
#include "perf/implementations/limit.h"
#include "perf/implementations/limit_kernels.h"
#include "perf/implementations/wires.h"

namespace vescomm::perf {
namespace {

// Up to here everyone sends everything: one way less.
constexpr std::int64_t send_all_bytes = 16384;
// Elements summed at once.
constexpr std::int64_t chunk = 16384;

class LimitHosts final : public Implementation {
public:
    explicit LimitHosts(const Worker &worker)
        : wires_(worker), rank_(worker.rank), ranks_(worker.ranks), kernels_(fastest_kernels()) {}

    std::string version() const override { return "plain TCP, straight from each to each"; }

    Costs prepare(const Case &what) override {
        const Collective &collective = find_collective(what.collective);
        if (what.shared) throw Unsupported("limit has a result for each rank between hosts");
        if (collective.reduces() &&
            (what.type != "f32" || what.output_type != "f32" || what.op != "sum"))
            throw Unsupported("limit only sums f32 between hosts");
        if (collective.name == "all_gather_v") act_ = &LimitHosts::gather;
        else if (collective.name == "reduce_scatter_v") act_ = &LimitHosts::reduce_scatter;
        else if (collective.name == "all_reduce") act_ = &LimitHosts::all_reduce;
        else if (collective.name == "barrier") act_ = &LimitHosts::meet;
        else throw Unsupported("limit has no " + what.collective + " between hosts");
        what_ = what;
        bytes_ = find_type(what.type).bytes();
        equal_.clear();
        for (int rank = 0; rank <= ranks_; ++rank)
            equal_.push_back(what.elements() * rank / ranks_);
        const bool all = collective.name == "all_reduce" && what.bytes() <= send_all_bytes;
        const std::int64_t part =
            all ? what.elements() : std::max(what.shard(rank_), equal_[rank_ + 1] - equal_[rank_]);
        buffer_.assign(static_cast<std::size_t>(what.bytes()) + 1, std::byte{});
        arrivals_.assign(static_cast<std::size_t>(ranks_), {});
        if (collective.reduces()) {
            for (auto &arrival : arrivals_)
                arrival.assign(static_cast<std::size_t>(part * bytes_) + 1, std::byte{});
            result_.assign(static_cast<std::size_t>(part) + 1, 0);
        }
        const Extent input = collective.input(what, rank_);
        const Extent output = collective.output(what, rank_);
        input_ = buffer_.data() + input.begin * bytes_;
        output_ = collective.name == "reduce_scatter_v"
                      ? reinterpret_cast<std::byte *>(result_.data())
                      : buffer_.data() + output.begin * bytes_;
        return {};
    }

    std::byte *input() override { return input_; }
    std::byte *output() override { return output_; }
    void start() override { (this->*act_)(); }
    void wait() override {}
    void end() override {}

    void meet() override {
        std::byte byte{};
        std::vector<Passing> passing(static_cast<std::size_t>(ranks_), {&byte, 1, &byte, 1});
        wires_.exchange(std::move(passing));
    }

private:
    std::byte *at(std::int64_t element) { return buffer_.data() + element * bytes_; }
    std::size_t size(const std::vector<std::int64_t> &cuts, int rank) const {
        return static_cast<std::size_t>((cuts[rank + 1] - cuts[rank]) * bytes_);
    }

    void gather() { gather(what_.cuts); }

    void gather(const std::vector<std::int64_t> &cuts) {
        std::vector<Passing> passing;
        for (int peer = 0; peer < ranks_; ++peer)
            passing.push_back(
                {at(cuts[rank_]), size(cuts, rank_), at(cuts[peer]), size(cuts, peer)});
        wires_.exchange(std::move(passing));
    }

    void reduce_scatter() { reduce(what_.cuts, result_.data()); }

    void reduce(const std::vector<std::int64_t> &cuts, float *sums) {
        std::vector<Passing> passing;
        for (int peer = 0; peer < ranks_; ++peer)
            passing.push_back(
                {at(cuts[peer]), size(cuts, peer), arrivals_[peer].data(), size(cuts, rank_)});
        sum_as_it_comes(std::move(passing), at(cuts[rank_]), cuts[rank_ + 1] - cuts[rank_], sums);
    }

    // Sums what arrives to `own`, `count` elements of everyone.
    void sum_as_it_comes(std::vector<Passing> passing, std::byte *own, std::int64_t count,
                         float *sums) {
        std::vector<const void *> sources;
        for (int peer = 0; peer < ranks_; ++peer)
            sources.push_back(peer == rank_ ? own : arrivals_[peer].data());
        std::int64_t done = 0;
        wires_.exchange(std::move(passing), [&](std::size_t arrived) {
            const std::int64_t here = static_cast<std::int64_t>(arrived) / bytes_;
            while (done < here && (here - done >= chunk || here == count)) {
                const std::int64_t some = std::min(chunk, here - done);
                kernels_.sum_f32(sums + done, sources.data(), ranks_,
                                 static_cast<std::size_t>(done), static_cast<std::size_t>(some),
                                 1.0F);
                done += some;
            }
        });
    }

    void all_reduce() {
        if (what_.bytes() > send_all_bytes) {
            // Nobody else reads this rank's part of this rank's buffer, so the sum may go there.
            reduce(equal_, reinterpret_cast<float *>(at(equal_[rank_])));
            return gather(equal_);
        }
        const auto bytes = static_cast<std::size_t>(what_.bytes());
        std::vector<Passing> passing;
        for (int peer = 0; peer < ranks_; ++peer)
            passing.push_back({at(0), bytes, arrivals_[peer].data(), bytes});
        sum_as_it_comes(std::move(passing), at(0), what_.elements(), result_.data());
        std::copy_n(reinterpret_cast<const std::byte *>(result_.data()), bytes, at(0));
    }

    Wires wires_;
    int rank_;
    int ranks_;
    const limit_kernels_t &kernels_;
    Case what_;
    void (LimitHosts::*act_)() = nullptr;
    std::int64_t bytes_ = 0;  // of an element
    std::vector<std::int64_t> equal_;  // cuts
    std::vector<std::byte> buffer_;
    std::vector<std::vector<std::byte>> arrivals_;  // of each rank
    std::vector<float> result_;
    std::byte *input_ = nullptr;
    std::byte *output_ = nullptr;
};

}  // namespace

std::unique_ptr<Implementation> make_limit_between_hosts(const Worker &worker) {
    return std::make_unique<LimitHosts>(worker);
}

}  // namespace vescomm::perf
