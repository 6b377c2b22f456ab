// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker that measures MPI; the same source for Open MPI and MPICH. MPI has no fused buffers: a
// tensor is an operation.
//
// Zone: per operation, in start().
#include <mpi.h>

#include <climits>
#include <cstdlib>

#include "perf/baselines/private_buffers.h"
#include "perf/worker/serve.h"

namespace vescomm::perf {
namespace {

// One MPI call: counts and displacements in elements, by rank.
struct Part {
    std::vector<int> counts;
    std::vector<int> begins;
    std::int64_t first = 0;  // of the tensor
    std::int64_t result = 0;  // first element of this rank's part within its shard
    int elements = 0;
};

int as_int(std::int64_t value) {
    // MPI 3's interfaces count in int.
    if (value > INT_MAX) throw Unsupported("MPI counts elements in int; the buffer has more");
    return static_cast<int>(value);
}

MPI_Datatype datatype_of(const Case &what) {
    const Type &type = find_type(what.type);
    if (!find_collective(what.collective).reduces()) {
        // Only moved: any type of that size.
        constexpr int most = 9;
        const MPI_Datatype by_size[most] = {MPI_DATATYPE_NULL, MPI_BYTE,          MPI_INT16_T,
                                            MPI_DATATYPE_NULL, MPI_INT32_T,       MPI_DATATYPE_NULL,
                                            MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_INT64_T};
        return by_size[type.bytes()];
    }
    if (what.op != "sum") throw Unsupported("MPI has no average");
    if (what.output_type != what.type) throw Unsupported("MPI leaves the type as it is");
    if (what.type == "f32") return MPI_FLOAT;
    if (what.type == "f64") return MPI_DOUBLE;
    if (what.type == "i32") return MPI_INT32_T;
    if (what.type == "i64") return MPI_INT64_T;
    throw Unsupported("MPI does not add " + what.type);
}

class Mpi final : public Implementation {
public:
    explicit Mpi(int rank) : rank_(rank) {}

    std::string version() const override {
        char text[MPI_MAX_LIBRARY_VERSION_STRING];
        int length = 0;
        MPI_Get_library_version(text, &length);
        const std::string whole(text, static_cast<std::size_t>(length));
        return whole.substr(0, whole.find_first_of(",\n"));
    }

    Costs prepare(const Case &what) override {
        if (what.shared) throw Unsupported("MPI has a result for each rank");
        type_ = datatype_of(what);
        if (what.collective == "all_gather_v") act_ = &Mpi::gather;
        else if (what.collective == "reduce_scatter_v") act_ = &Mpi::reduce_scatter;
        else if (what.collective == "all_reduce") act_ = &Mpi::all_reduce;
        else if (what.collective == "broadcast") act_ = &Mpi::broadcast;
        else if (what.collective == "barrier") act_ = &Mpi::barrier;
        else if (what.collective == "reduce") act_ = &Mpi::reduce;
        else if (what.collective == "gather_v") act_ = &Mpi::gather_at_root;
        else if (what.collective == "scatter_v") act_ = &Mpi::scatter;
        else throw Unsupported("this worker has no " + what.collective);
        bytes_ = find_type(what.type).bytes();
        root_ = what.root;
        parts_.clear();
        for (const std::vector<Extent> &tensor : split_by_tensor(what)) {
            Part part;
            part.first = tensor.front().begin;
            for (const Extent &extent : tensor) {
                part.counts.push_back(as_int(extent.elements()));
                part.begins.push_back(as_int(extent.begin - part.first));
            }
            part.result = tensor[rank_].begin - what.cuts[rank_];
            part.elements = as_int(tensor.back().end - part.first);
            parts_.push_back(std::move(part));
        }
        buffers_ = PrivateBuffers(what, rank_);
        return {};
    }

    std::byte *input() override { return buffers_.input(); }
    std::byte *output() override { return buffers_.output(); }
    void start() override {
        for (const Part &part : parts_) (this->*act_)(part);
    }
    void wait() override {}
    void end() override { buffers_ = {}; }
    void meet() override { MPI_Barrier(MPI_COMM_WORLD); }

private:
    std::byte *tensor(const Part &part) { return buffers_.whole() + part.first * bytes_; }

    void gather(const Part &part) {
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, tensor(part), part.counts.data(),
                       part.begins.data(), type_, MPI_COMM_WORLD);
    }

    void reduce_scatter(const Part &part) {
        MPI_Reduce_scatter(tensor(part), buffers_.output() + in_shard(part), part.counts.data(),
                           type_, MPI_SUM, MPI_COMM_WORLD);
    }

    void all_reduce(const Part &part) {
        MPI_Allreduce(MPI_IN_PLACE, tensor(part), part.elements, type_, MPI_SUM, MPI_COMM_WORLD);
    }

    void broadcast(const Part &part) {
        MPI_Bcast(tensor(part), part.elements, type_, root_, MPI_COMM_WORLD);
    }

    void reduce(const Part &part) {
        MPI_Reduce(tensor(part), buffers_.output() + part.first * bytes_, part.elements, type_,
                   MPI_SUM, root_, MPI_COMM_WORLD);
    }

    std::int64_t in_shard(const Part &part) const {
        return part.counts[rank_] > 0 ? part.result * bytes_ : 0;
    }

    void gather_at_root(const Part &part) {
        MPI_Gatherv(buffers_.input() + in_shard(part), part.counts[rank_], type_,
                    buffers_.output() + part.first * bytes_, part.counts.data(), part.begins.data(),
                    type_, root_, MPI_COMM_WORLD);
    }

    void scatter(const Part &part) {
        MPI_Scatterv(tensor(part), part.counts.data(), part.begins.data(), type_,
                     buffers_.output() + in_shard(part), part.counts[rank_], type_, root_,
                     MPI_COMM_WORLD);
    }

    void barrier(const Part &) { MPI_Barrier(MPI_COMM_WORLD); }

    int rank_;
    int root_ = 0;
    std::int64_t bytes_ = 1;
    MPI_Datatype type_ = MPI_BYTE;
    void (Mpi::*act_)(const Part &) = nullptr;
    std::vector<Part> parts_;
    PrivateBuffers buffers_;
};

}  // namespace
}  // namespace vescomm::perf

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const int code = vescomm::perf::serve(VESCOMM_PERF_NAME, [](vescomm::perf::Worker &worker) {
        MPI_Comm_rank(MPI_COMM_WORLD, &worker.rank);
        return std::make_unique<vescomm::perf::Mpi>(worker.rank);
    });
    if (code != 0) MPI_Abort(MPI_COMM_WORLD, code);
    MPI_Finalize();
    return code;
}
