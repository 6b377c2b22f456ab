// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker that measures Gloo over TCP, its only transport for any machine. Gloo has no fused
// buffers, so every tensor is one operation. Buffers are registered once if Gloo's options can be
// reused.
//
// Zone: per operation, in start().
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "perf/case/private_buffers.h"
#include "perf/worker/serve.h"

namespace vescomm::perf {
namespace {

// Longer than any timeout of the coordinator, which applies instead.
constexpr std::chrono::milliseconds timeout = std::chrono::hours(10);

class Gloo final : public Implementation {
public:
    explicit Gloo(const Worker &worker) : rank_(worker.rank), ranks_(worker.ranks) {
        gloo::transport::tcp::attr address;
        address.hostname = worker.address.empty() ? "127.0.0.1" : worker.address;
        auto device = gloo::transport::tcp::CreateDevice(address);
        const std::string folder = worker.folder + "/gloo";
        std::filesystem::create_directories(folder);
        gloo::rendezvous::FileStore store(folder);
        auto context = std::make_shared<gloo::rendezvous::Context>(rank_, ranks_);
        context->setTimeout(timeout);
        context->connectFullMesh(store, device);
        context_ = context;
    }

    std::string version() const override { return "Gloo over TCP"; }

    Costs prepare(const Case &what) override {
        const Collective &collective = find_collective(what.collective);
        if (what.shared) throw Unsupported("Gloo has a result for each rank");
        if (collective.reduces() && (what.type != "f32" || what.output_type != "f32"))
            throw Unsupported("this worker adds only f32");
        if (collective.reduces() && what.op != "sum") throw Unsupported("this worker only adds");
        buffers_ = PrivateBuffers(what, rank_);
        bytes_ = find_type(what.type).bytes();
        calls_.clear();
        keep_.clear();
        if (collective.name == "barrier") {
            calls_.push_back([this] {
                gloo::BarrierOptions options(context_);
                options.setTimeout(timeout);
                gloo::barrier(options);
            });
            return {};
        }
        for (const Part &part : parts_of(what)) calls_.push_back(make_call(what, part));
        return {};
    }

    std::byte *input() override { return buffers_.input(); }
    std::byte *output() override { return buffers_.output(); }
    void start() override {
        for (const auto &call : calls_) call();
    }
    void wait() override {}
    void end() override {
        calls_.clear();
        keep_.clear();
        buffers_ = {};
    }
    void meet() override {
        gloo::BarrierOptions options(context_);
        gloo::barrier(options);
    }

private:
    using Call = std::function<void()>;

    Call make_call(const Case &what, const Part &part) {
        std::byte *first = buffers_.whole() + part.first * bytes_;
        const auto elements = static_cast<std::size_t>(part.elements);
        if (elements == 0) return [] {};
        if (what.collective == "all_gather_v") return gather(first, part);
        if (what.collective == "reduce_scatter_v") return reduce_scatter(first, part);
        if (what.collective == "all_to_all_v") return all_to_all(what, part);
        if (what.collective == "send_receive") return send_receive(what, part);
        if (what.collective == "all_reduce") return all_reduce(first, elements);
        if (what.collective == "broadcast") return broadcast(first, elements, what.root);
        throw Unsupported("this worker has no " + what.collective);
    }

    // In place: without an input, Gloo uses this rank's part of the output.
    Call gather(std::byte *first, const Part &part) {
        auto options = keep(gloo::AllgathervOptions(context_));
        std::vector<std::size_t> counts;
        for (const std::int64_t count : part.counts)
            counts.push_back(static_cast<std::size_t>(count * bytes_));
        options->setOutput(reinterpret_cast<char *>(first), counts);
        options->setTimeout(timeout);
        return [options] { gloo::allgatherv(*options); };
    }

    // Gloo's only reduce_scatter works in place and leaves this rank's part at the beginning of the
    // buffer.
    Call reduce_scatter(std::byte *first, const Part &part) {
        const std::vector<int> counts(part.counts.begin(), part.counts.end());
        auto *data = reinterpret_cast<float *>(first);
        const auto elements = static_cast<int>(part.elements);
        auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
            context_, std::vector<float *>{data}, elements, counts);
        std::byte *result = buffers_.output() + part.in_shard[rank_] * bytes_;
        const auto bytes = static_cast<std::size_t>(part.counts[rank_] * bytes_);
        return [algorithm, data, result, bytes] {
            algorithm->run();
            if (bytes > 0) std::memcpy(result, data, bytes);
        };
    }

    Call all_reduce(std::byte *first, std::size_t elements) {
        auto options = keep(gloo::AllreduceOptions(context_));
        options->setOutput(reinterpret_cast<float *>(first), elements);
        options->setReduceFunction(
            static_cast<void (*)(void *, const void *, const void *, std::size_t)>(
                &gloo::sum<float>));
        options->setTimeout(timeout);
        return [options] { gloo::allreduce(*options); };
    }

    Call broadcast(std::byte *first, std::size_t elements, int root) {
        auto options = keep(gloo::BroadcastOptions(context_));
        options->setOutput(reinterpret_cast<char *>(first), elements * bytes_);
        options->setRoot(root);
        options->setTimeout(timeout);
        return [options] { gloo::broadcast(*options); };
    }

    Call all_to_all(const Case &what, const Part &part) {
        if (what.tensors.size() > 2)
            throw Unsupported("Gloo puts what ranks send one after another");
        auto options = keep(gloo::AlltoallvOptions(context_));
        const auto each = [this](const std::vector<std::int64_t> &counts) {
            std::vector<std::int64_t> bytes;
            for (const std::int64_t count : counts) bytes.push_back(count * bytes_);
            return bytes;
        };
        const std::vector<std::int64_t> mine(part.counts.size(), part.counts[rank_]);
        options->setInput(reinterpret_cast<char *>(buffers_.whole()), each(part.counts));
        options->setOutput(reinterpret_cast<char *>(buffers_.output()), each(mine));
        options->setTimeout(timeout);
        return [options] { gloo::alltoallv(*options); };
    }

    Call send_receive(const Case &what, const Part &part) {
        const int next = what.next(rank_), previous = what.previous(rank_);
        if (next == rank_) throw Unsupported("Gloo has no messages from a rank to itself");
        const auto place = [&](int rank) { return ranks_ * part.in_shard[rank] * bytes_; };
        const auto bytes = [&](int rank) {
            return static_cast<std::size_t>(ranks_ * part.counts[rank] * bytes_);
        };
        std::shared_ptr<gloo::transport::UnboundBuffer> sent =
            context_->createUnboundBuffer(buffers_.input() + place(rank_), bytes(rank_));
        std::shared_ptr<gloo::transport::UnboundBuffer> received =
            context_->createUnboundBuffer(buffers_.output() + place(previous), bytes(previous));
        return [=] {
            received->recv(previous, 0);
            sent->send(next, 0);
            sent->waitSend(timeout);
            received->waitRecv(timeout);
        };
    }

    template <typename Options>
    std::shared_ptr<Options> keep(Options options) {
        auto kept = std::make_shared<Options>(std::move(options));
        keep_.push_back(kept);
        return kept;
    }

    int rank_;
    int ranks_;
    std::shared_ptr<gloo::Context> context_;
    PrivateBuffers buffers_;
    std::int64_t bytes_ = 1;
    std::vector<std::shared_ptr<void>> keep_;
    std::vector<Call> calls_;
};

}  // namespace
}  // namespace vescomm::perf

int main() {
    return vescomm::perf::serve("gloo", [](const vescomm::perf::Worker &worker) {
        return std::make_unique<vescomm::perf::Gloo>(worker);
    });
}
