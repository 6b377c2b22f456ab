// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation, in start().
#include "perf/implementations/arrays.h"

#include "perf/baselines/private_buffers.h"

namespace vescomm::perf {
namespace {

// One tensor: counts by rank, and where its parts lie.
struct Part {
    std::vector<std::int64_t> counts;
    std::int64_t first = 0;  // of the tensor, in bytes
    std::int64_t shard = 0;  // this rank's part, in bytes from the first of its shard
    std::int64_t elements = 0;
};

class Arrays final : public Implementation {
public:
    explicit Arrays(Communicator &comm) : comm_(comm), rank_(comm.rank()) {}

    std::string version() const override { return std::string("vescomm ") + vescomm_version(); }

    Costs prepare(const Case &what) override {
        if (what.shared) throw Unsupported("an array belongs to one rank");
        if (what.output_type != what.type) throw Unsupported("both arrays have one type");
        const std::int64_t bytes = find_type(what.type).bytes();
        what_ = what;
        type_ = find_type(what.type).number;
        op_ = what.op == "avg" ? VESCOMM_AVERAGE : VESCOMM_SUM;
        parts_.clear();
        for (const std::vector<Extent> &tensor : split_by_tensor(what)) {
            Part part;
            part.first = tensor.front().begin * bytes;
            for (const Extent &extent : tensor) part.counts.push_back(extent.elements());
            part.shard = (tensor[rank_].begin - what.cuts[rank_]) * bytes;
            if (part.counts[rank_] == 0) part.shard = 0;
            part.elements = tensor.back().end - tensor.front().begin;
            parts_.push_back(std::move(part));
        }
        buffers_ = PrivateBuffers(what, rank_);
        return {};
    }

    std::byte *input() override { return buffers_.input(); }
    std::byte *output() override { return buffers_.output(); }
    void start() override {
        if (what_.collective == "barrier") return comm_.barrier();
        if (parts_.size() == 1) return call(parts_[0]);
        check(vescomm_group_begin(comm_.get()));
        for (const Part &part : parts_) call(part);
        check(vescomm_group_end(comm_.get(), nullptr));
    }
    void wait() override {}
    void end() override { buffers_ = {}; }
    void meet() override { comm_.barrier(); }

private:
    // Tensors lie in the whole buffer one after another, and parts of shards in a shard.
    void call(const Part &part) {
        vescomm_comm_t *comm = comm_.get();
        const std::string &name = what_.collective;
        const std::int64_t *counts = part.counts.data();
        std::byte *whole = buffers_.whole() + part.first;
        std::byte *mine = buffers_.input() + part.shard;
        if (name == "all_gather_v")
            check(
                vescomm_all_gather_v(comm, mine, whole, counts, nullptr, type_, nullptr, nullptr));
        else if (name == "reduce_scatter_v")
            check(vescomm_reduce_scatter_v(comm, whole, buffers_.output() + part.shard, counts,
                                           type_, op_, nullptr, nullptr));
        else if (name == "all_reduce")
            check(vescomm_all_reduce(comm, whole, whole, part.elements, type_, op_, nullptr,
                                     nullptr));
        else if (name == "broadcast")
            check(
                vescomm_broadcast(comm, whole, part.elements, type_, what_.root, nullptr, nullptr));
        else if (name == "reduce")
            check(vescomm_reduce(comm, whole, buffers_.output() + part.first, part.elements, type_,
                                 op_, what_.root, nullptr, nullptr));
        else if (name == "gather_v")
            check(vescomm_gather_v(comm, mine, buffers_.output() + part.first, counts, nullptr,
                                   type_, what_.root, nullptr, nullptr));
        else if (name == "scatter_v")
            check(vescomm_scatter_v(comm, whole, buffers_.output() + part.shard, counts, nullptr,
                                    type_, what_.root, nullptr, nullptr));
        else throw Unsupported("this worker has no " + name);
    }

    Communicator &comm_;
    int rank_;
    Case what_;
    vescomm_type_t type_ = VESCOMM_F32;
    vescomm_op_t op_ = VESCOMM_SUM;
    std::vector<Part> parts_;
    PrivateBuffers buffers_;
};

}  // namespace

std::unique_ptr<Implementation> make_arrays(Communicator &comm) {
    return std::make_unique<Arrays>(comm);
}

}  // namespace vescomm::perf
