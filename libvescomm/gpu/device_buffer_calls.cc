// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device buffers. Zone: per operation.
#include <algorithm>
#include <vector>

#include "gpu/device_arguments.h"
#include "gpu/device_buffer.h"

namespace vescomm::internal::device {
namespace {

// Throws if the memory of two buffers overlaps: the calls of a group may run at the same time.
void check_apart(const char *function, std::vector<const DeviceBuffer *> buffers) {
    std::ranges::sort(buffers, {}, &DeviceBuffer::data);
    for (std::size_t k = 1; k < buffers.size(); ++k) {
        const DeviceBuffer &first = *buffers[k - 1], &second = *buffers[k];
        if (&first == &second) refuse(function, "buffer \"" + first.name() + "\" is given twice");
        if (first.data() + first.placement().size() > second.data())
            refuse(function, "buffers \"" + first.name() + "\" and \"" + second.name() +
                                 "\" overlap; give them to separate calls");
    }
}

// The communicator of all buffers, ready for a call on the stream.
std::shared_ptr<DeviceCommunicator> checked_comm(const char *function,
                                                 std::span<DeviceBuffer *const> buffers,
                                                 cuda::Stream stream) {
    const auto comm = buffers[0]->comm(function);
    for (const DeviceBuffer *buffer : buffers)
        if (buffer->comm(function) != comm)
            refuse(function, "buffers \"" + buffers[0]->name() + "\" and \"" + buffer->name() +
                                 "\" belong to different communicators");
    // Buffers without elements are in no call, and may share an address with others.
    std::vector<const DeviceBuffer *> some;
    for (const DeviceBuffer *buffer : buffers)
        if (buffer->placement().size() != 0) some.push_back(buffer);
    check_apart(function, std::move(some));
    comm->check_call(function, stream);
    return comm;
}

// Gives calls their parts of the workspace of the communicator.
class WorkspaceParts {
public:
    WorkspaceParts(const char *function, const DeviceCommunicator &comm)
        : function_(function), comm_(comm) {}

    // Chooses the method of a call: that of the buffer alone, or another one if the rest of the
    // workspace is too small for it.
    void choose(RaggedCall &call, DeviceBuffer &buffer) {
        call.method = buffer.method(comm_, call.reduction != nullptr);
        if (call.method != DeviceMethod::padded) return;
        DeviceProblem problem = buffer.problem(comm_, call.reduction != nullptr);
        const std::uint64_t needed = padded_bytes(problem.shard_bytes);
        if (needed <= problem.workspace_bytes - used_) {
            call.workspace = comm_.workspace() + used_;
            used_ += needed;
            return;
        }
        if (!problem.forced.empty())
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        std::string(function_) +
                            ": with the method \"padded\", the group needs a "
                            "larger workspace than " +
                            std::to_string(problem.workspace_bytes) +
                            " bytes: " + std::to_string(used_) + " are in use before buffer \"" +
                            buffer.name() + "\", which needs " + std::to_string(needed) +
                            "; give fewer buffers, or raise workspace_bytes");
        problem.workspace_bytes -= used_;
        call.method = choose_device_method(problem).method;
    }

private:
    const char *function_;
    const DeviceCommunicator &comm_;
    std::uint64_t used_ = 0;  // a multiple of 16
};

// `reductions`: one for each buffer, or none for all_gather_v.
void run_group(const char *function, DeviceCommunicator &comm,
               std::span<DeviceBuffer *const> buffers, std::span<const Reduction> reductions,
               cuda::Stream stream) {
    WorkspaceParts parts(function, comm);
    std::vector<RaggedCall> calls;
    std::vector<DeviceCall> begun;
    for (std::size_t k = 0; k < buffers.size(); ++k) {
        RaggedCall call;
        call.placement = &buffers[k]->placement();
        call.reduction = reductions.empty() ? nullptr : &reductions[k];
        call.place = buffers[k]->place();
        parts.choose(call, *buffers[k]);
        if (is_one_call_in_place(call.method)) call.shard_place = call.place;
        begun.push_back(device_call(call, buffers[k]->type()));
        if (call.placement->sum() == 0) continue;
        if (!uses_nccl(call.method)) call.peers = buffers[k]->peers(comm);
        call.whole = buffers[k]->data();
        call.shard = buffers[k]->shard(comm.rank());
        calls.push_back(call);
    }
    for (const DeviceCall &call : begun) comm.begin_call(call);
    if (calls.empty()) return;
    run(comm, calls, stream);
    comm.end_call(stream);
}

}  // namespace

void all_gather_v(std::span<DeviceBuffer *const> buffers, cuda::Stream stream) {
    const char *function = "vescomm_gpu_buffer_all_gather_v";
    if (buffers.empty()) return;
    const auto comm = checked_comm(function, buffers, stream);
    run_group(function, *comm, buffers, {}, stream);
}

void reduce_scatter_v(std::span<DeviceBuffer *const> buffers, vescomm_op_t op,
                      cuda::Stream stream) {
    const char *function = "vescomm_gpu_buffer_reduce_scatter_v";
    if (buffers.empty()) return;
    const auto comm = checked_comm(function, buffers, stream);
    std::vector<Reduction> reductions;
    for (const DeviceBuffer *buffer : buffers)
        reductions.push_back(checked_reduction(function, buffer->type(), op));
    run_group(function, *comm, buffers, reductions, stream);
}

}  // namespace vescomm::internal::device
