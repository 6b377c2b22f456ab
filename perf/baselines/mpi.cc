// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A worker that measures MPI, built for Open MPI and for MPICH. MPI has no fused buffers, so every
// tensor is one operation.
//
// Zone: per operation, in start() and wait().
#include <mpi.h>

#include <climits>
#include <cstdlib>

#include "perf/case/private_buffers.h"
#include "perf/worker/serve.h"

namespace vescomm::perf {
namespace {

int as_int(std::int64_t value) {
    // The functions of MPI 3 take counts as int.
    if (value > INT_MAX) throw Unsupported("MPI counts elements in int; the buffer has more");
    return static_cast<int>(value);
}

// One MPI call: counts and displacements in elements, by rank.
struct Call {
    Call(const Part &part, const Case &what, int rank)
        : tensor(part.first),
          in_shard(part.in_shard[rank]),
          in_shard_of_previous(part.in_shard[what.previous(rank)]),
          elements(as_int(part.elements)) {
        const bool exchanges = what.collective == "all_to_all_v";
        if (exchanges || what.collective == "send_receive")
            as_int(what.largest_shard() * what.ranks());
        for (int peer = 0; peer < what.ranks(); ++peer) {
            counts.push_back(as_int(part.counts[peer]));
            begins.push_back(as_int(part.begins[peer] - part.first));
            if (!exchanges) continue;
            mine.push_back(as_int(part.counts[rank]));
            mine_begins.push_back(as_int(peer * what.shard(rank) + in_shard));
        }
    }

    std::int64_t tensor;  // first element of the tensor in the buffer
    std::int64_t in_shard;  // first element of this rank's part, relative to its shard
    std::int64_t in_shard_of_previous;
    int elements;
    std::vector<int> counts;
    std::vector<int> begins;  // in the tensor
    std::vector<int> mine;  // all_to_all_v: elements that each rank has for this rank
    std::vector<int> mine_begins;  // all_to_all_v: their places in the output
};

MPI_Datatype datatype_of(const Case &what) {
    const Type &type = find_type(what.type);
    if (!find_collective(what.collective).reduces()) {
        // Elements are only moved, so any type of the same size serves.
        constexpr int max = 9;
        const MPI_Datatype by_size[max] = {MPI_DATATYPE_NULL, MPI_BYTE,          MPI_INT16_T,
                                           MPI_DATATYPE_NULL, MPI_INT32_T,       MPI_DATATYPE_NULL,
                                           MPI_DATATYPE_NULL, MPI_DATATYPE_NULL, MPI_INT64_T};
        return type.bytes() < max ? by_size[type.bytes()] : MPI_C_DOUBLE_COMPLEX;
    }
    if (what.output_type != what.type) throw Unsupported("MPI leaves the type as it is");
    const std::pair<const char *, MPI_Datatype> types[] = {
        {"f32", MPI_FLOAT},    {"f64", MPI_DOUBLE},          {"i8", MPI_INT8_T},
        {"u8", MPI_UINT8_T},   {"i16", MPI_INT16_T},         {"u16", MPI_UINT16_T},
        {"i32", MPI_INT32_T},  {"u32", MPI_UINT32_T},        {"i64", MPI_INT64_T},
        {"u64", MPI_UINT64_T}, {"c64", MPI_C_FLOAT_COMPLEX}, {"c128", MPI_C_DOUBLE_COMPLEX}};
    for (const auto &[name, number] : types)
        if (what.type == name) return number;
    throw Unsupported("MPI does not combine " + what.type);
}

MPI_Op op_of(const Case &what) {
    // MPI may copy a single contribution, which is then not 0 or 1.
    if (what.ranks() == 1 && what.op.starts_with('l'))
        throw Unsupported("MPI leaves a single contribution to a logical operator as it is");
    if (what.op == "prod") return MPI_PROD;
    if (what.op == "min") return MPI_MIN;
    if (what.op == "max") return MPI_MAX;
    if (what.op == "band") return MPI_BAND;
    if (what.op == "bor") return MPI_BOR;
    if (what.op == "bxor") return MPI_BXOR;
    if (what.op == "land") return MPI_LAND;
    if (what.op == "lor") return MPI_LOR;
    if (what.op == "lxor") return MPI_LXOR;
    if (what.op == "avg") throw Unsupported("MPI has no average");
    return MPI_SUM;
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
        op_ = op_of(what);
        if (what.collective == "all_gather_v") act_ = &Mpi::gather;
        else if (what.collective == "reduce_scatter_v") act_ = &Mpi::reduce_scatter;
        else if (what.collective == "all_reduce") act_ = &Mpi::all_reduce;
        else if (what.collective == "broadcast") act_ = &Mpi::broadcast;
        else if (what.collective == "barrier") act_ = &Mpi::barrier;
        else if (what.collective == "reduce") act_ = &Mpi::reduce;
        else if (what.collective == "gather_v") act_ = &Mpi::gather_at_root;
        else if (what.collective == "scatter_v") act_ = &Mpi::scatter;
        else if (what.collective == "all_to_all_v") act_ = &Mpi::all_to_all;
        else if (what.collective == "send_receive") act_ = &Mpi::send_receive;
        else throw Unsupported("this worker has no " + what.collective);
        bytes_ = find_type(what.type).bytes();
        what_ = what;
        calls_.clear();
        for (const Part &part : parts_of(what)) calls_.emplace_back(part, what, rank_);
        buffers_ = PrivateBuffers(what, rank_);
        return {};
    }

    std::byte *input() override { return buffers_.input(); }
    std::byte *output() override { return buffers_.output(); }
    void start() override {
        for (const Call &call : calls_) {
            if (!what_.non_blocking) {
                (this->*act_)(call, nullptr);
                continue;
            }
            MPI_Request request;
            (this->*act_)(call, &request);
            requests_.push_back(request);
        }
    }
    void wait() override {
        if (requests_.empty()) return;
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
        requests_.clear();
    }
    bool starts_non_blocking() const override { return what_.non_blocking; }
    void end() override { buffers_ = {}; }
    // Over UCX, when ranks outnumber cores, a large send of the last operation may not complete
    // before its receiver calls MPI again.
    void progress() override {
        int any = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);
    }
    void meet() override { MPI_Barrier(MPI_COMM_WORLD); }

private:
    std::byte *tensor(const Call &call) { return buffers_.whole() + call.tensor * bytes_; }
    // Used for results in a separate array.
    std::byte *shard(const Call &call) { return buffers_.output() + call.in_shard * bytes_; }

    // Calls the blocking variant if `request` is null, otherwise the non-blocking one.
    template <typename Now, typename Later, typename... Arguments>
    static void call_one(Now now, Later later, MPI_Request *request, Arguments... arguments) {
        if (request == nullptr) now(arguments...);
        else later(arguments..., request);
    }

    void gather(const Call &call, MPI_Request *request) {
        call_one(MPI_Allgatherv, MPI_Iallgatherv, request, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL,
                 tensor(call), call.counts.data(), call.begins.data(), type_, MPI_COMM_WORLD);
    }

    void reduce_scatter(const Call &call, MPI_Request *request) {
        call_one(MPI_Reduce_scatter, MPI_Ireduce_scatter, request, tensor(call), shard(call),
                 call.counts.data(), type_, op_, MPI_COMM_WORLD);
    }

    void all_reduce(const Call &call, MPI_Request *request) {
        call_one(MPI_Allreduce, MPI_Iallreduce, request, MPI_IN_PLACE, tensor(call), call.elements,
                 type_, op_, MPI_COMM_WORLD);
    }

    void broadcast(const Call &call, MPI_Request *request) {
        call_one(MPI_Bcast, MPI_Ibcast, request, tensor(call), call.elements, type_, what_.root,
                 MPI_COMM_WORLD);
    }

    void reduce(const Call &call, MPI_Request *request) {
        const bool root = rank_ == what_.root;
        call_one(MPI_Reduce, MPI_Ireduce, request, root ? MPI_IN_PLACE : tensor(call),
                 root ? tensor(call) : nullptr, call.elements, type_, op_, what_.root,
                 MPI_COMM_WORLD);
    }

    void gather_at_root(const Call &call, MPI_Request *request) {
        call_one(MPI_Gatherv, MPI_Igatherv, request, buffers_.input() + call.in_shard * bytes_,
                 call.counts[rank_], type_, buffers_.output() + call.tensor * bytes_,
                 call.counts.data(), call.begins.data(), type_, what_.root, MPI_COMM_WORLD);
    }

    void scatter(const Call &call, MPI_Request *request) {
        call_one(MPI_Scatterv, MPI_Iscatterv, request, tensor(call), call.counts.data(),
                 call.begins.data(), type_, shard(call), call.counts[rank_], type_, what_.root,
                 MPI_COMM_WORLD);
    }

    void all_to_all(const Call &call, MPI_Request *request) {
        call_one(MPI_Alltoallv, MPI_Ialltoallv, request, tensor(call), call.counts.data(),
                 call.begins.data(), type_, buffers_.output(), call.mine.data(),
                 call.mine_begins.data(), type_, MPI_COMM_WORLD);
    }

    // `request` is for the received message; the sent message has a separate request.
    void send_receive(const Call &call, MPI_Request *request) {
        const int ranks = what_.ranks();
        const int next = what_.next(rank_), previous = what_.previous(rank_);
        std::byte *from = buffers_.input() + ranks * call.in_shard * bytes_;
        std::byte *to = buffers_.output() + ranks * call.in_shard_of_previous * bytes_;
        const int sends = ranks * call.counts[rank_], receives = ranks * call.counts[previous];
        if (request == nullptr) {
            MPI_Sendrecv(from, sends, type_, next, 0, to, receives, type_, previous, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            return;
        }
        MPI_Irecv(to, receives, type_, previous, 0, MPI_COMM_WORLD, request);
        MPI_Request sent;
        MPI_Isend(from, sends, type_, next, 0, MPI_COMM_WORLD, &sent);
        requests_.push_back(sent);
    }

    void barrier(const Call &, MPI_Request *request) {
        call_one(MPI_Barrier, MPI_Ibarrier, request, MPI_COMM_WORLD);
    }

    int rank_;
    Case what_;
    std::int64_t bytes_ = 1;
    MPI_Datatype type_ = MPI_BYTE;
    MPI_Op op_ = MPI_SUM;
    void (Mpi::*act_)(const Call &, MPI_Request *) = nullptr;
    std::vector<MPI_Request> requests_;  // started and not yet complete
    std::vector<Call> calls_;
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
