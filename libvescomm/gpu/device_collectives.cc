// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_collectives.h"

#include <string>

#include "base/types.h"
#include "gpu/device_arguments.h"
#include "gpu/device_placement.h"
#include "gpu/device_ragged.h"

namespace vescomm::internal::device {
namespace {

// Chooses the method, checks the caller's memory, and puts the call on the stream. `shard`: that of
// this rank; nullptr: in place.
void run_checked(const char *function, DeviceCommunicator &comm, RaggedCall call, char *shard,
                 vescomm_type_t type, cuda::Stream stream) {
    const DevicePlacement &placement = *call.placement;
    const bool reduces = call.reduction != nullptr;
    call.method = choose_device_method(problem_of(comm, placement, reduces)).method;
    if (placement.sum() == 0) return comm.begin_call(device_call(call, type));
    call.place = comm.place_of(call.whole);
    check_pointer(function, reduces ? "source" : "output", call.whole, type);
    char *own = call.whole + placement.begin(comm.rank());
    call.shard = shard != nullptr ? shard : own;
    check_pointer(function, reduces ? "output" : "source", call.shard, type);
    check_overlap(function, call.shard, placement.bytes(comm.rank()), call.whole, placement.size(),
                  own);
    call.workspace = comm.workspace();
    if (is_one_call_in_place(call.method))
        call.shard_place = call.shard == own ? call.place : comm.place_of(call.shard);
    comm.begin_call(device_call(call, type));
    run(comm, {&call, 1}, stream);
    comm.end_call(stream);
}

}  // namespace

DevicePlacement checked_placement(const char *function, const DeviceCommunicator &comm,
                                  const Layout &layout, vescomm_type_t type) {
    check_type(function, type);
    check_layout(function, comm, layout);
    return {layout, size_of(type), DevicePlacement::Kind::memory};
}

DeviceProblem problem_of(const DeviceCommunicator &comm, const DevicePlacement &placement,
                         bool reduces) {
    DeviceProblem problem;
    problem.reduces = reduces;
    problem.shard_bytes = placement.shard_bytes();
    problem.workspace_bytes = comm.options().workspace_bytes;
    problem.nccl_version = comm.libraries().nccl_version;
    problem.forced = comm.options().method;
    problem.stride = placement.stride();
    problem.aligned = !placement.unaligned();
    return problem;
}

void all_gather_v(DeviceCommunicator &comm, const Layout &layout, vescomm_type_t type,
                  const void *source, void *output, cuda::Stream stream) {
    const char *function = "vescomm_gpu_all_gather_v";
    comm.check_call(function, stream);
    const DevicePlacement placement = checked_placement(function, comm, layout, type);
    RaggedCall call;
    call.placement = &placement;
    call.whole = static_cast<char *>(output);
    run_checked(function, comm, call, static_cast<char *>(const_cast<void *>(source)), type,
                stream);
}

void reduce_scatter_v(DeviceCommunicator &comm, const Layout &layout, vescomm_type_t type,
                      vescomm_op_t op, void *source, void *output, cuda::Stream stream) {
    const char *function = "vescomm_gpu_reduce_scatter_v";
    comm.check_call(function, stream);
    const DevicePlacement placement = checked_placement(function, comm, layout, type);
    const Reduction reduction = checked_reduction(function, type, op);
    check_reproducible(function, comm, type);
    RaggedCall call;
    call.placement = &placement;
    call.reduction = &reduction;
    call.whole = static_cast<char *>(source);
    run_checked(function, comm, call, static_cast<char *>(output), type, stream);
}

void all_reduce(DeviceCommunicator &comm, const void *source, void *output, std::int64_t count,
                vescomm_type_t type, vescomm_op_t op, cuda::Stream stream) {
    const char *function = "vescomm_gpu_all_reduce";
    comm.check_call(function, stream);
    check_type(function, type);
    check_count(function, count);
    const Reduction reduction = checked_reduction(function, type, op);
    check_reproducible(function, comm, type);
    DeviceCall begun{.kind = DeviceCall::Kind::all_reduce,
                     .type = type,
                     .op = op,
                     .elements = static_cast<std::uint64_t>(count)};
    if (count == 0) return comm.begin_call(begun);
    check_pointer(function, "source", source, type);
    check_pointer(function, "output", output, type);
    const std::uint64_t bytes = static_cast<std::uint64_t>(count) * size_of(type);
    check_overlap(function, static_cast<const char *>(source), bytes,
                  static_cast<const char *>(output), bytes, static_cast<const char *>(output));
    begun.data = comm.place_of(output);
    begun.source = comm.place_of(source);
    comm.begin_call(begun);
    comm.call("ncclAllReduce()", [&] {
        return comm.libraries().nccl.all_reduce(source, output, static_cast<std::size_t>(count),
                                                reduction.type, reduction.op, comm.nccl(), stream);
    });
    comm.end_call(stream);
}

void broadcast(DeviceCommunicator &comm, void *data, std::int64_t count, vescomm_type_t type,
               int root, cuda::Stream stream) {
    const char *function = "vescomm_gpu_broadcast";
    comm.check_call(function, stream);
    check_type(function, type);
    check_count(function, count);
    if (root < 0 || root >= comm.ranks())
        refuse(function, "root is " + std::to_string(root) + "; ranks are 0 to " +
                             std::to_string(comm.ranks() - 1));
    DeviceCall begun{.kind = DeviceCall::Kind::broadcast,
                     .type = type,
                     .root = root,
                     .elements = static_cast<std::uint64_t>(count)};
    if (count == 0) return comm.begin_call(begun);
    check_pointer(function, "data", data, type);
    begun.data = comm.place_of(data);
    comm.begin_call(begun);
    comm.call("ncclBroadcast()", [&] {
        return comm.libraries().nccl.broadcast(data, data,
                                               static_cast<std::size_t>(count) * size_of(type),
                                               nccl::u8, root, comm.nccl(), stream);
    });
    comm.end_call(stream);
}

}  // namespace vescomm::internal::device
