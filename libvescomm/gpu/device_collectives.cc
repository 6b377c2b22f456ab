// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_collectives.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "gpu/nccl_types.h"

namespace vescomm::internal::device {
namespace {

[[noreturn]] void refuse(const char *function, const std::string &why) {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, std::string(function) + ": " + why);
}

// A group of NCCL's calls, which start together when it ends. A failure within the group is
// reported when the group has ended: NCCL can neither be waited for nor aborted while a group is
// open.
class Grouped {
public:
    explicit Grouped(DeviceCommunicator &comm) : comm_(comm) {
        comm_.require(comm_.libraries().nccl.group_start(), "ncclGroupStart()");
        open_ = true;
    }
    ~Grouped() {
        if (open_) comm_.libraries().nccl.group_end();
    }
    Grouped(const Grouped &) = delete;
    Grouped &operator=(const Grouped &) = delete;

    // Adds a call of NCCL, unless an earlier one has failed.
    template <typename Call>
    void add(const char *function, const Call &call) {
        if (failed_ != nullptr) return;
        const nccl::Result result = call();
        if (result == nccl::success || result == nccl::in_progress) return;
        failed_ = function;
        failure_ = result;
    }

    void end() {
        open_ = false;
        const nccl::Result result = comm_.libraries().nccl.group_end();
        if (failed_ != nullptr) comm_.require(failure_, failed_);
        comm_.require(result, "ncclGroupEnd()");
    }

private:
    DeviceCommunicator &comm_;
    bool open_ = false;
    const char *failed_ = nullptr;  // function of the first call that failed
    nccl::Result failure_ = nccl::success;
};

// ---- arguments ----

void check_type(const char *function, vescomm_type_t type) {
    if (type < VESCOMM_F32 || type > last_type)
        refuse(function, name_of_type(type) + " is no type of elements");
}

void check_count(const char *function, std::int64_t count) {
    if (count < 0 || count > std::int64_t{1} << 40)
        refuse(function, "count is " + std::to_string(count) + "; it must be 0 to 2^40");
}

void check_pointer(const char *function, const char *name, const void *pointer,
                   vescomm_type_t type) {
    if (pointer == nullptr) refuse(function, std::string(name) + " is NULL; it must be given");
    if (reinterpret_cast<std::uintptr_t>(pointer) % alignment_of(type) != 0)
        refuse(function,
               std::string(name) + " is not aligned to its elements of type " + name_of_type(type));
}

// `expected`: the address in the second array at which the first one may lie.
void check_overlap(const char *function, const char *first, std::uint64_t first_bytes,
                   const char *second, std::uint64_t second_bytes, const char *expected) {
    if (first == expected || first_bytes == 0 || second_bytes == 0) return;
    if (first + first_bytes <= second || second + second_bytes <= first) return;
    refuse(function, "source and output overlap, but not in place");
}

nccl::Type nccl_type(const char *function, vescomm_type_t type) {
    if (const auto reduced = nccl::reduced_type(type)) return *reduced;
    throw Error(VESCOMM_ERROR_UNSUPPORTED, std::string(function) +
                                               ": NCCL does not reduce elements of type " +
                                               name_of_type(type) + " on every GPU");
}

nccl::Op nccl_op(const char *function, vescomm_op_t op, vescomm_type_t type) {
    const bool floats =
        type == VESCOMM_F32 || type == VESCOMM_F64 || type == VESCOMM_F16 || type == VESCOMM_BF16;
    switch (op) {
        case VESCOMM_SUM:
            return nccl::sum;
        case VESCOMM_PROD:
            return nccl::prod;
        case VESCOMM_MIN:
            return nccl::min;
        case VESCOMM_MAX:
            return nccl::max;
        case VESCOMM_AVERAGE:
            if (floats) return nccl::average;
            break;
        default:
            break;
    }
    if (op < 0 || op > last_op) refuse(function, name_of_op(op) + " is no operator");
    throw Error(VESCOMM_ERROR_UNSUPPORTED, std::string(function) + ": there is no " +
                                               name_of_op(op) + " of elements of type " +
                                               name_of_type(type) + " on device memory");
}

// NCCL chooses the order of contributions.
void check_reproducible(const char *function, const DeviceCommunicator &comm) {
    if (comm.comm().reproducible() && comm.ranks() > 1)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    std::string(function) +
                        ": the communicator asks for reproducible reductions, and those of NCCL "
                        "are not");
}

void check_layout(const char *function, const DeviceCommunicator &comm, const Layout &layout) {
    if (layout.ranks() != comm.ranks())
        refuse(function, "the layout has " + std::to_string(layout.ranks()) +
                             " shards, and the communicator " + std::to_string(comm.ranks()) +
                             " ranks");
}

// ---- ragged collectives ----

// The bytes of a ragged collective on this rank.
struct Ragged {
    DeviceCommunicator &comm;
    const Layout &layout;
    std::size_t element;  // bytes
    cuda::Stream stream;

    std::uint64_t begin(int rank) const {
        return static_cast<std::uint64_t>(layout.shard(rank).begin) * element;
    }
    std::uint64_t bytes(int rank) const { return elements(rank) * element; }
    std::uint64_t elements(int rank) const {
        return static_cast<std::uint64_t>(layout.shard(rank).elements());
    }
    // Bytes of the largest shard: the distance of shards in the workspace.
    std::uint64_t stride() const {
        return static_cast<std::uint64_t>(layout.largest_shard()) * element;
    }
    char *slot(int rank) const {
        return comm.workspace() + static_cast<std::uint64_t>(rank) * stride();
    }
    const nccl::Library &nccl() const { return comm.libraries().nccl; }

    void copy(void *target, const void *source, std::uint64_t size) const {
        if (size == 0 || target == source) return;
        comm.require_cuda(comm.libraries().cuda.memcpy_async(target, source, size,
                                                             cuda::copy_device_to_device, stream),
                          "cudaMemcpyAsync()");
    }
};

void gather_equal(const Ragged &r, const char *source, char *output) {
    r.comm.require(
        r.nccl().all_gather(source, output, r.stride(), nccl::u8, r.comm.nccl(), r.stream),
        "ncclAllGather()");
}

void gather_padded(const Ragged &r, const char *source, char *output) {
    const int own = r.comm.rank();
    r.copy(r.slot(own), source, r.bytes(own));
    gather_equal(r, r.slot(own), r.comm.workspace());
    for (int rank = 0; rank < r.comm.ranks(); ++rank)
        if (rank != own) r.copy(output + r.begin(rank), r.slot(rank), r.bytes(rank));
    r.copy(output + r.begin(own), source, r.bytes(own));
}

void gather_rooted(const Ragged &r, const char *source, char *output) {
    Grouped group(r.comm);
    for (int rank = 0; rank < r.comm.ranks(); ++rank) {
        if (r.bytes(rank) == 0) continue;
        char *shard = output + r.begin(rank);
        const char *from = rank == r.comm.rank() ? source : shard;
        group.add("ncclBroadcast()", [&] {
            return r.nccl().broadcast(from, shard, r.bytes(rank), nccl::u8, rank, r.comm.nccl(),
                                      r.stream);
        });
    }
    group.end();
}

void gather_messages(const Ragged &r, const char *source, char *output) {
    const int own = r.comm.rank();
    r.copy(output + r.begin(own), source, r.bytes(own));
    Grouped group(r.comm);
    for (int rank = 0; rank < r.comm.ranks(); ++rank) {
        if (rank == own) continue;
        if (r.bytes(own) != 0)
            group.add("ncclSend()", [&] {
                return r.nccl().send(source, r.bytes(own), nccl::u8, rank, r.comm.nccl(), r.stream);
            });
        if (r.bytes(rank) != 0)
            group.add("ncclRecv()", [&] {
                return r.nccl().recv(output + r.begin(rank), r.bytes(rank), nccl::u8, rank,
                                     r.comm.nccl(), r.stream);
            });
    }
    group.end();
}

// The type and the operator of a reduction.
struct Reduction {
    nccl::Type type;
    nccl::Op op;
};

void scatter_equal(const Ragged &r, Reduction reduction, const char *source, char *output) {
    r.comm.require(
        r.nccl().reduce_scatter(source, output, static_cast<std::size_t>(r.layout.largest_shard()),
                                reduction.type, reduction.op, r.comm.nccl(), r.stream),
        "ncclReduceScatter()");
}

// The padding of a slot holds bytes of earlier calls. Their sums stay in the padding.
void scatter_padded(const Ragged &r, Reduction reduction, const char *source, char *output) {
    const int own = r.comm.rank();
    for (int rank = 0; rank < r.comm.ranks(); ++rank)
        r.copy(r.slot(rank), source + r.begin(rank), r.bytes(rank));
    scatter_equal(r, reduction, r.comm.workspace(), r.slot(own));
    r.copy(output, r.slot(own), r.bytes(own));
}

void scatter_rooted(const Ragged &r, Reduction reduction, const char *source, char *output) {
    Grouped group(r.comm);
    for (int rank = 0; rank < r.comm.ranks(); ++rank) {
        if (r.bytes(rank) == 0) continue;
        group.add("ncclReduce()", [&] {
            return r.nccl().reduce(source + r.begin(rank), output, r.elements(rank), reduction.type,
                                   reduction.op, rank, r.comm.nccl(), r.stream);
        });
    }
    group.end();
}

}  // namespace

DeviceProblem checked_problem(const char *function, const DeviceCommunicator &comm,
                              const Layout &layout, vescomm_type_t type, bool reduces) {
    check_type(function, type);
    check_layout(function, comm, layout);
    DeviceProblem problem;
    problem.reduces = reduces;
    problem.workspace_bytes = comm.options().workspace_bytes;
    problem.nccl_version = comm.libraries().nccl_version;
    problem.forced = comm.options().method;
    for (int rank = 0; rank < layout.ranks(); ++rank)
        problem.shard_bytes.push_back(static_cast<std::uint64_t>(layout.shard(rank).elements()) *
                                      size_of(type));
    return problem;
}

void all_gather_v(DeviceCommunicator &comm, const Layout &layout, vescomm_type_t type,
                  const void *source, void *output, cuda::Stream stream) {
    const char *function = "vescomm_gpu_all_gather_v";
    comm.check_call(function);
    const DeviceProblem problem = checked_problem(function, comm, layout, type, false);
    const DeviceMethod method = choose_device_method(problem).method;
    if (layout.elements() == 0) return;
    check_pointer(function, "output", output, type);
    const Ragged ragged{comm, layout, size_of(type), stream};
    auto *all = static_cast<char *>(output);
    char *own = all + ragged.begin(comm.rank());
    const auto *shard = source != nullptr ? static_cast<const char *>(source) : own;
    check_pointer(function, "source", shard, type);
    check_overlap(function, shard, ragged.bytes(comm.rank()), all,
                  static_cast<std::uint64_t>(layout.elements()) * ragged.element, own);
    switch (method) {
        case DeviceMethod::equal:
            return gather_equal(ragged, shard, all);
        case DeviceMethod::padded:
            return gather_padded(ragged, shard, all);
        case DeviceMethod::rooted:
            return gather_rooted(ragged, shard, all);
        case DeviceMethod::messages:
            return gather_messages(ragged, shard, all);
    }
}

void reduce_scatter_v(DeviceCommunicator &comm, const Layout &layout, vescomm_type_t type,
                      vescomm_op_t op, void *source, void *output, cuda::Stream stream) {
    const char *function = "vescomm_gpu_reduce_scatter_v";
    comm.check_call(function);
    const DeviceProblem problem = checked_problem(function, comm, layout, type, true);
    check_reproducible(function, comm);
    const Reduction reduction{nccl_type(function, type), nccl_op(function, op, type)};
    const DeviceMethod method = choose_device_method(problem).method;
    if (layout.elements() == 0) return;
    check_pointer(function, "source", source, type);
    const Ragged ragged{comm, layout, size_of(type), stream};
    auto *all = static_cast<char *>(source);
    char *own = all + ragged.begin(comm.rank());
    auto *shard = output != nullptr ? static_cast<char *>(output) : own;
    check_pointer(function, "output", shard, type);
    check_overlap(function, shard, ragged.bytes(comm.rank()), all,
                  static_cast<std::uint64_t>(layout.elements()) * ragged.element, own);
    switch (method) {
        case DeviceMethod::equal:
            return scatter_equal(ragged, reduction, all, shard);
        case DeviceMethod::padded:
            return scatter_padded(ragged, reduction, all, shard);
        case DeviceMethod::rooted:
        case DeviceMethod::messages:
            return scatter_rooted(ragged, reduction, all, shard);
    }
}

void all_reduce(DeviceCommunicator &comm, const void *source, void *output, std::int64_t count,
                vescomm_type_t type, vescomm_op_t op, cuda::Stream stream) {
    const char *function = "vescomm_gpu_all_reduce";
    comm.check_call(function);
    check_type(function, type);
    check_count(function, count);
    check_reproducible(function, comm);
    const Reduction reduction{nccl_type(function, type), nccl_op(function, op, type)};
    if (count == 0) return;
    check_pointer(function, "source", source, type);
    check_pointer(function, "output", output, type);
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * size_of(type);
    check_overlap(function, static_cast<const char *>(source), bytes,
                  static_cast<const char *>(output), bytes, static_cast<const char *>(output));
    comm.require(
        comm.libraries().nccl.all_reduce(source, output, static_cast<std::size_t>(count),
                                         reduction.type, reduction.op, comm.nccl(), stream),
        "ncclAllReduce()");
}

void broadcast(DeviceCommunicator &comm, void *data, std::int64_t count, vescomm_type_t type,
               int root, cuda::Stream stream) {
    const char *function = "vescomm_gpu_broadcast";
    comm.check_call(function);
    check_type(function, type);
    check_count(function, count);
    if (root < 0 || root >= comm.ranks())
        refuse(function, "root is " + std::to_string(root) + "; ranks are 0 to " +
                             std::to_string(comm.ranks() - 1));
    if (count == 0) return;
    check_pointer(function, "data", data, type);
    comm.require(
        comm.libraries().nccl.broadcast(data, data, static_cast<std::size_t>(count) * size_of(type),
                                        nccl::u8, root, comm.nccl(), stream),
        "ncclBroadcast()");
}

}  // namespace vescomm::internal::device
