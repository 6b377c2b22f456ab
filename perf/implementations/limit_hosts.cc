// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The reference between hosts: plain TCP. Every rank sends directly to all other ranks at once, and
// receives into the final place.
//
//     all_gather_v      send the own shard to each other rank
//     reduce_scatter_v  send each other rank its shard of the own buffer; add data as it arrives
//     all_reduce        reduce_scatter_v with equal parts, then all_gather_v of these; for small
//                       buffers, send everything to every rank
//     all_to_all_v      send each other rank its shard of the own buffer
//     send_receive      send the own message to the next rank
//     barrier           send a byte to each other rank
//
// Equal shards cross the network the minimum number of times.
//
// Zone: per operation and per byte.
#include <algorithm>
#include <vector>

#include "perf/case/collectives.h"
#include "perf/implementations/limit.h"
#include "perf/implementations/limit_kernels.h"
#include "perf/implementations/tcp_connections.h"

namespace vescomm::perf {
namespace {

// Up to this size every rank sends everything to every rank, which saves one latency.
constexpr std::int64_t send_all_bytes = 16384;
// Elements summed at once.
constexpr std::int64_t chunk = 16384;

class LimitHosts final : public Implementation {
public:
    explicit LimitHosts(const Worker &worker)
        : connections_(worker),
          rank_(worker.rank),
          ranks_(worker.ranks),
          kernels_(fastest_kernels()) {}

    std::string version() const override { return "plain TCP, directly between all ranks"; }

    Costs prepare(const Case &what) override {
        const Collective &collective = find_collective(what.collective);
        if (what.shared) throw Unsupported("limit has a result for each rank between hosts");
        if (collective.reduces() &&
            (what.type != "f32" || what.output_type != "f32" || what.op != "sum"))
            throw Unsupported("limit only sums f32 between hosts");
        if (collective.name == "all_gather_v") act_ = &LimitHosts::gather;
        else if (collective.name == "reduce_scatter_v") act_ = &LimitHosts::reduce_scatter;
        else if (collective.name == "all_reduce") act_ = &LimitHosts::all_reduce;
        else if (collective.name == "all_to_all_v") act_ = &LimitHosts::all_to_all;
        else if (collective.name == "send_receive") act_ = &LimitHosts::send_receive;
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
        const auto memory_for = [this](std::int64_t elements) {
            return std::vector<std::byte>(static_cast<std::size_t>(elements * bytes_) + 1);
        };
        const Extent input = collective.input(what, rank_);
        const Extent output = collective.output(what, rank_);
        buffer_ = memory_for(std::max(what.elements(), input.end));
        arrivals_.assign(static_cast<std::size_t>(ranks_), {});
        if (collective.reduces())
            for (auto &arrival : arrivals_) arrival = memory_for(part);
        result_ = memory_for(collective.reduces() ? part : output.elements());
        input_ = at(input.begin);
        output_ = collective.in_place ? at(output.begin) : result_.data();
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
        connections_.exchange(std::move(passing));
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
        connections_.exchange(std::move(passing));
    }

    float *sums() { return reinterpret_cast<float *>(result_.data()); }

    void reduce_scatter() { reduce(what_.cuts, sums()); }

    void reduce(const std::vector<std::int64_t> &cuts, float *sums) {
        std::vector<Passing> passing;
        for (int peer = 0; peer < ranks_; ++peer)
            passing.push_back(
                {at(cuts[peer]), size(cuts, peer), arrivals_[peer].data(), size(cuts, rank_)});
        sum_as_it_comes(std::move(passing), at(cuts[rank_]), cuts[rank_ + 1] - cuts[rank_], sums);
    }

    // Adds `count` elements of every rank to `own` as they arrive.
    void sum_as_it_comes(std::vector<Passing> passing, std::byte *own, std::int64_t count,
                         float *sums) {
        std::vector<const void *> sources;
        for (int peer = 0; peer < ranks_; ++peer)
            sources.push_back(peer == rank_ ? own : arrivals_[peer].data());
        std::int64_t done = 0;
        connections_.exchange(std::move(passing), [&](std::size_t arrived) {
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
            // This rank's part of its own buffer is not sent, so the sum may go there.
            reduce(equal_, reinterpret_cast<float *>(at(equal_[rank_])));
            return gather(equal_);
        }
        const auto bytes = static_cast<std::size_t>(what_.bytes());
        std::vector<Passing> passing;
        for (int peer = 0; peer < ranks_; ++peer)
            passing.push_back({at(0), bytes, arrivals_[peer].data(), bytes});
        sum_as_it_comes(std::move(passing), at(0), what_.elements(), sums());
        std::copy_n(result_.data(), bytes, at(0));
    }

    void all_to_all() {
        const std::size_t mine = size(what_.cuts, rank_);
        const auto place = [&](int peer) {
            return result_.data() + static_cast<std::size_t>(peer) * mine;
        };
        std::copy_n(at(what_.cuts[rank_]), mine, place(rank_));
        std::vector<Passing> passing;
        for (int peer = 0; peer < ranks_; ++peer)
            passing.push_back({at(what_.cuts[peer]), size(what_.cuts, peer), place(peer), mine});
        connections_.exchange(std::move(passing));
    }

    void send_receive() {
        const auto bytes = [this](int rank) {
            return static_cast<std::size_t>(what_.message(rank) * bytes_);
        };
        const int previous = what_.previous(rank_);
        std::vector<Passing> passing(static_cast<std::size_t>(ranks_));
        Passing &to_next = passing[what_.next(rank_)], &from_previous = passing[previous];
        to_next.from = at(0);
        to_next.to_send = bytes(rank_);
        from_previous.to = result_.data();
        from_previous.to_receive = bytes(previous);
        connections_.exchange(std::move(passing));
    }

    TcpConnections connections_;
    int rank_;
    int ranks_;
    const limit_kernels_t &kernels_;
    Case what_;
    void (LimitHosts::*act_)() = nullptr;
    std::int64_t bytes_ = 0;  // of an element
    std::vector<std::int64_t> equal_;  // cuts
    std::vector<std::byte> buffer_;
    std::vector<std::vector<std::byte>> arrivals_;  // data received from each rank
    std::vector<std::byte> result_;
    std::byte *input_ = nullptr;
    std::byte *output_ = nullptr;
};

}  // namespace

std::unique_ptr<Implementation> make_limit_between_hosts(const Worker &worker) {
    return std::make_unique<LimitHosts>(worker);
}

}  // namespace vescomm::perf
