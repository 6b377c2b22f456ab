// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The collectives, messages and groups of NCCL.
#include <algorithm>
#include <utility>

#include "gpu/double/nccl_group.h"

namespace gpu_double {
namespace {

// Calls of an open group of the calling thread.
struct OpenGroup {
    int depth = 0;
    struct Entry {
        ncclComm *comm;
        cuda::Stream stream;
        Call call;
    };
    std::vector<Entry> entries;
    nccl::Result error = nccl::success;  // of a call in the group

    ~OpenGroup() {
        if (depth > 0) violation("a thread ends within an open group: ncclGroupEnd() is missing");
    }
};
thread_local OpenGroup open_group;

nccl::Result start_group() {
    const auto entries = std::exchange(open_group.entries, {});
    nccl::Result result = nccl::success;
    std::vector<ncclComm *> order;
    for (const auto &entry : entries)
        if (std::find(order.begin(), order.end(), entry.comm) == order.end())
            order.push_back(entry.comm);
    for (ncclComm *comm : order) {
        std::vector<Call> calls;
        cuda::Stream stream = nullptr;
        for (const auto &entry : entries) {
            if (entry.comm != comm) continue;
            if (!calls.empty() && entry.stream != stream)
                violation("the double needs one stream for the calls of a group");
            stream = entry.stream;
            calls.push_back(entry.call);
        }
        const nccl::Result one = make(*comm, [=] {
            return start(comm, stream, calls) == cuda::success ? nccl::success
                                                               : nccl::unhandled_cuda_error;
        });
        if (one != nccl::success) result = one;
    }
    return result;
}

nccl::Result checked_call(const char *function, ncclComm *comm, cuda::Stream stream, Call made) {
    if (const int result = injected_result(function)) return result;
    if (!usable(comm, function)) return nccl::invalid_argument;
    Group &group = *comm->group;
    {
        const std::lock_guard<std::mutex> lock(group.mutex);
        if (group.arrived < group.ranks()) {
            violation(std::string(function) + " on a communicator that is not ready");
            return nccl::invalid_usage;
        }
        if (comm->aborted) {
            violation(std::string(function) + " on an aborted communicator");
            return nccl::invalid_usage;
        }
        if (comm->revoked) {
            violation(std::string(function) + " on a revoked communicator");
            return nccl::invalid_usage;
        }
        if (comm->error != nccl::success) return comm->error;
        if (comm->questions_left > 0) {
            violation(std::string(function) + " while the previous call is in progress");
            return nccl::invalid_argument;
        }
    }
    if (bytes_of(made.type) == 0) return refuse(*comm, nccl::invalid_argument, "unknown type");
    if (made.op < 0 || made.op > nccl::average)
        return refuse(*comm, nccl::invalid_argument, "unknown operator");
    if (made.peer < 0 || made.peer >= group.ranks())
        return refuse(*comm, nccl::invalid_argument, "a root or peer that is no rank");
    const auto [source_bytes, output_bytes] = sizes(made, *comm);
    int device = 0;
    cudaGetDevice(&device);
    if (device != comm->device)
        violation(std::string(function) + " on device " + std::to_string(device) +
                  ", and the communicator is on device " + std::to_string(comm->device));
    check_overlap(made, *comm);
    // NCCL does not use the registration of the output of ncclReduce(), which is that of the root.
    made.registered =
        (source_bytes == 0 || find_registered(*comm, made.source, source_bytes).found) &&
        (output_bytes == 0 || made.kind == Kind::reduce ||
         find_registered(*comm, made.output, output_bytes).found);
    // NCCL's symmetric kernels find the data of other ranks at the offset of their own.
    const auto symmetric = made.kind == Kind::all_gather
                               ? find_registered(*comm, made.output, output_bytes)
                               : find_registered(*comm, made.source, source_bytes);
    if (symmetric.window) made.window_offset = symmetric.offset;
    open_group.entries.push_back({comm, stream, made});
    if (open_group.depth > 0) {
        const std::lock_guard<std::mutex> lock(group.mutex);
        ++comm->queued;
    }
    return open_group.depth > 0 ? nccl::success : start_group();
}

nccl::Result call(const char *function, ncclComm *comm, cuda::Stream stream, const Call &made) {
    const nccl::Result result = checked_call(function, comm, stream, made);
    // A failed call makes the group fail.
    if (open_group.depth > 0 && result != nccl::success) open_group.error = result;
    return result;
}

}  // namespace

void leave_group() {
    open_group = {};
}

std::string group_is_open() {
    if (open_group.depth == 0) return {};
    return "a wait within an open group, whose calls have not started: ncclGroupEnd() is missing";
}

}  // namespace gpu_double

using namespace gpu_double;

#define CALL(function) \
    if (const int result = injected_result(#function)) return result

extern "C" {

int ncclGroupStart() {
    CALL(ncclGroupStart);
    ++open_group.depth;
    return nccl::success;
}

int ncclGroupEnd() {
    const nccl::Result injected = injected_result("ncclGroupEnd");
    if (open_group.depth == 0) {
        violation("ncclGroupEnd() without ncclGroupStart()");
        return nccl::invalid_usage;
    }
    if (injected != nccl::success) open_group.error = injected;
    if (--open_group.depth > 0) return nccl::success;
    for (const auto &entry : open_group.entries) {
        const std::lock_guard<std::mutex> lock(entry.comm->group->mutex);
        entry.comm->queued = 0;
    }
    // A group that failed ends without its calls.
    if (const nccl::Result error = std::exchange(open_group.error, nccl::success)) {
        open_group.entries.clear();
        return error;
    }
    return start_group();
}

int ncclAllGather(const void *source, void *output, std::size_t count, nccl::Type type,
                  nccl::Comm comm, cuda::Stream stream) {
    return call("ncclAllGather", comm, stream, {Kind::all_gather, source, output, count, type});
}

int ncclReduceScatter(const void *source, void *output, std::size_t count, nccl::Type type,
                      nccl::Op op, nccl::Comm comm, cuda::Stream stream) {
    return call("ncclReduceScatter", comm, stream,
                {Kind::reduce_scatter, source, output, count, type, op});
}

int ncclAllReduce(const void *source, void *output, std::size_t count, nccl::Type type, nccl::Op op,
                  nccl::Comm comm, cuda::Stream stream) {
    return call("ncclAllReduce", comm, stream, {Kind::all_reduce, source, output, count, type, op});
}

int ncclBroadcast(const void *source, void *output, std::size_t count, nccl::Type type, int root,
                  nccl::Comm comm, cuda::Stream stream) {
    return call("ncclBroadcast", comm, stream,
                {Kind::broadcast, source, output, count, type, 0, root});
}

int ncclReduce(const void *source, void *output, std::size_t count, nccl::Type type, nccl::Op op,
               int root, nccl::Comm comm, cuda::Stream stream) {
    return call("ncclReduce", comm, stream, {Kind::reduce, source, output, count, type, op, root});
}

int ncclSend(const void *source, std::size_t count, nccl::Type type, int peer, nccl::Comm comm,
             cuda::Stream stream) {
    return call("ncclSend", comm, stream, {Kind::send, source, nullptr, count, type, 0, peer});
}

int ncclRecv(void *output, std::size_t count, nccl::Type type, int peer, nccl::Comm comm,
             cuda::Stream stream) {
    return call("ncclRecv", comm, stream, {Kind::receive, nullptr, output, count, type, 0, peer});
}

}  // extern "C"
