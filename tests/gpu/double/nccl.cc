// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of NCCL. The variable GPU_DOUBLE_NCCL is the version that ncclGetVersion() returns
// (22809).
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "gpu/double/nccl_group.h"

namespace gpu_double {
namespace {

// All communicators of the process. Never destroyed, as the queues of streams.
struct Comms {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Group>> groups;  // by unique id
    std::vector<ncclComm *> all;
    std::uint64_t next_id = 1;
};
Comms &comms() {
    static Comms *const all = new Comms;
    return *all;
}

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

std::string group_is_open() {
    if (open_group.depth == 0) return {};
    return "a wait within an open group, whose calls have not started: ncclGroupEnd() is missing";
}

std::string still_registered(const void *begin, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    const auto *first = static_cast<const char *>(begin);
    for (const ncclComm *comm : comms().all)
        for (const auto &[window, range] : comm->windows)
            if (range.first < first + bytes && first < range.first + range.second)
                return "device memory is freed while it is a registered window of rank " +
                       std::to_string(comm->rank);
    return {};
}

bool within_window(const ncclComm &comm, const void *begin, std::size_t bytes) {
    const auto *first = static_cast<const char *>(begin);
    return std::any_of(comm.windows.begin(), comm.windows.end(), [&](const auto &window) {
        const auto &[start, size] = window.second;
        return first >= start && first + bytes <= start + size;
    });
}

// Makes `call` at once. In the non-blocking mode two of three calls start later, when the program
// has asked for their state once or twice.
nccl::Result make(ncclComm &comm, const std::function<nccl::Result()> &call) {
    {
        const std::lock_guard<std::mutex> lock(comm.group->mutex);
        const int delay = comm.blocking ? 0 : comm.next_delay++ % 3;
        if (delay > 0) {
            comm.questions_left = delay;
            comm.in_progress.push_back(call);
            return nccl::in_progress;
        }
    }
    return call();
}

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

// ---- calls ----

nccl::Result refuse(ncclComm &comm, nccl::Result result, const std::string &why) {
    const std::lock_guard<std::mutex> lock(comm.group->mutex);
    comm.last_error = why;
    return result;
}

bool usable(const ncclComm *comm, const char *function) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    const auto &all = comms().all;
    if (std::find(all.begin(), all.end(), comm) == all.end() || comm->destroyed) {
        violation(std::string(function) + " on a communicator that does not exist any more");
        return false;
    }
    return true;
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
    if ((source_bytes != 0 && !is_device_address(made.source)) ||
        (output_bytes != 0 && !is_device_address(made.output)))
        return refuse(*comm, nccl::invalid_argument, "an address that is not in device memory");
    int device = 0;
    cudaGetDevice(&device);
    if (device != comm->device)
        violation(std::string(function) + " on device " + std::to_string(device) +
                  ", and the communicator is on device " + std::to_string(comm->device));
    check_overlap(made, *comm);
    made.registered = (source_bytes == 0 || within_window(*comm, made.source, source_bytes)) &&
                      (output_bytes == 0 || within_window(*comm, made.output, output_bytes));
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

void end_comm(ncclComm &comm, const char *function) {
    if (open_group.depth > 0)
        violation(std::string(function) + " within an open group: ncclGroupEnd() is missing");
    {
        const std::lock_guard<std::mutex> lock(comm.group->mutex);
        if (comm.queued > 0)
            violation(std::string(function) + " of a communicator with calls in an open group");
    }
    if (!comm.windows.empty() && !comm.aborted)
        violation(std::string(function) + " of a communicator with registered windows");
    const std::lock_guard<std::mutex> lock(comms().mutex);
    comm.windows.clear();
    comm.destroyed = true;
}

}  // namespace

void break_device(int device, nccl::Result result) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    for (ncclComm *comm : comms().all) {
        if (comm->device != device || comm->destroyed) continue;
        const std::lock_guard<std::mutex> group_lock(comm->group->mutex);
        comm->pending_break = result;
    }
}

int live_communicators() {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    return static_cast<int>(
        std::ranges::count_if(comms().all, [](const ncclComm *comm) { return !comm->destroyed; }));
}

}  // namespace gpu_double

using namespace gpu_double;

#define CALL(function) \
    if (const int result = injected_result(#function)) return result

extern "C" {

int ncclGetVersion(int *version) {
    CALL(ncclGetVersion);
    const char *text = std::getenv("GPU_DOUBLE_NCCL");
    *version = text != nullptr ? std::atoi(text) : 22809;
    return nccl::success;
}

int ncclGetUniqueId(nccl::UniqueId *id) {
    CALL(ncclGetUniqueId);
    std::memset(id, 0, sizeof *id);
    const std::lock_guard<std::mutex> lock(comms().mutex);
    const std::string text = "double " + std::to_string(comms().next_id++);
    std::memcpy(id->internal, text.data(), text.size());
    return nccl::success;
}

int ncclCommInitRankConfig(nccl::Comm *out, int ranks, nccl::UniqueId id, int rank,
                           nccl::Config *config) {
    CALL(ncclCommInitRankConfig);
    set_release_check(still_registered);
    set_wait_check(group_is_open);
    if (config != nullptr &&
        (config->magic != 0xcafebeef || config->size != sizeof *config || config->version < 22800))
        return nccl::invalid_argument;
    if (ranks < 1 || rank < 0 || rank >= ranks) return nccl::invalid_argument;
    auto *comm = new ncclComm;
    {
        const std::lock_guard<std::mutex> lock(comms().mutex);
        auto &group = comms().groups[std::string(id.internal, sizeof id.internal)];
        if (!group) group = std::make_shared<Group>(ranks);
        comm->group = group;
        comms().all.push_back(comm);
    }
    comm->rank = rank;
    cudaGetDevice(&comm->device);
    Group &group = *comm->group;
    std::unique_lock<std::mutex> lock(group.mutex);
    const auto at = static_cast<std::size_t>(rank);
    if (group.ranks() != ranks || group.members[at] != nullptr) {
        violation("ncclCommInitRankConfig(): ranks disagree about the communicator");
        return nccl::invalid_usage;
    }
    if (std::find(group.devices.begin(), group.devices.end(), comm->device) !=
        group.devices.end()) {
        comm->last_error = "duplicate GPU";
        comm->error = nccl::invalid_usage;
    }
    group.members[at] = comm;
    group.devices[at] = comm->device;
    ++group.arrived;
    group.changed.notify_all();
    *out = comm;
    comm->blocking = config == nullptr || config->blocking != 0;
    if (!comm->blocking) return nccl::in_progress;
    group.changed.wait(lock, [&] { return comm->aborted || group.arrived == ranks; });
    return comm->error;
}

int ncclCommFinalize(nccl::Comm comm) {
    CALL(ncclCommFinalize);
    if (!usable(comm, "ncclCommFinalize()")) return nccl::invalid_argument;
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    if (comm->finalizing) return nccl::invalid_argument;
    comm->finalizing = true;
    // In the non-blocking mode it ends when all ranks have called it.
    ++comm->group->finalized;
    return comm->blocking ? nccl::success : nccl::in_progress;
}

int ncclCommDestroy(nccl::Comm comm) {
    CALL(ncclCommDestroy);
    if (!usable(comm, "ncclCommDestroy()")) return nccl::invalid_argument;
    end_comm(*comm, "ncclCommDestroy()");
    return nccl::success;
}

int ncclCommAbort(nccl::Comm comm) {
    CALL(ncclCommAbort);
    if (!usable(comm, "ncclCommAbort()")) return nccl::invalid_argument;
    {
        const std::lock_guard<std::mutex> lock(comm->group->mutex);
        comm->aborted = true;
        if (!comm->finalizing) ++comm->group->finalized;
        comm->group->changed.notify_all();
    }
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds());
    while (comm->in_graphs() && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (comm->in_graphs())
        violation("ncclCommAbort() waits too long for the end of graphs: a deadlock");
    end_comm(*comm, "ncclCommAbort()");
    return nccl::success;
}

int ncclCommGetAsyncError(nccl::Comm comm, nccl::Result *error) {
    CALL(ncclCommGetAsyncError);
    if (!usable(comm, "ncclCommGetAsyncError()")) return nccl::invalid_argument;
    std::vector<std::function<nccl::Result()>> starts;
    {
        const std::lock_guard<std::mutex> lock(comm->group->mutex);
        if (comm->questions_left > 0 && --comm->questions_left == 0)
            starts = std::exchange(comm->in_progress, {});
    }
    for (const auto &start : starts) {
        const nccl::Result result = start();
        const std::lock_guard<std::mutex> lock(comm->group->mutex);
        if (result != nccl::success) comm->error = result;
    }
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    const Group &group = *comm->group;
    const bool ends = comm->finalizing && !comm->blocking &&
                      (group.finalized < group.ranks() || comm->in_graphs());
    const bool ready = group.arrived == group.ranks() && !ends && comm->questions_left == 0;
    *error = comm->error != nccl::success ? comm->error : ready ? nccl::success : nccl::in_progress;
    return nccl::success;
}

int ncclCommCount(nccl::Comm comm, int *count) {
    CALL(ncclCommCount);
    *count = comm->group->ranks();
    return nccl::success;
}

int ncclCommUserRank(nccl::Comm comm, int *rank) {
    CALL(ncclCommUserRank);
    *rank = comm->rank;
    return nccl::success;
}

int ncclCommCuDevice(nccl::Comm comm, int *device) {
    CALL(ncclCommCuDevice);
    *device = comm->device;
    return nccl::success;
}

int ncclMemAlloc(void **pointer, std::size_t bytes) {
    CALL(ncclMemAlloc);
    if (check_capture("ncclMemAlloc()") != cuda::success) return nccl::unhandled_cuda_error;
    void *made = allocate(bytes, true);
    if (made == nullptr) return nccl::unhandled_cuda_error;
    *pointer = made;
    return nccl::success;
}

int ncclMemFree(void *pointer) {
    CALL(ncclMemFree);
    if (check_capture("ncclMemFree()") != cuda::success) return nccl::unhandled_cuda_error;
    return release(pointer, true) ? nccl::success : nccl::invalid_argument;
}

int ncclCommWindowRegister(nccl::Comm comm, void *pointer, std::size_t bytes, nccl::Window *window,
                           int) {
    CALL(ncclCommWindowRegister);
    if (!usable(comm, "ncclCommWindowRegister()")) return nccl::invalid_argument;
    const auto *memory = static_cast<const char *>(nccl_memory_of(pointer, bytes));
    if (memory == nullptr || (static_cast<char *>(pointer) - memory) % nccl::window_alignment != 0)
        return refuse(*comm, nccl::invalid_argument,
                      "a window must lie in memory of ncclMemAlloc(), at a multiple of 4096");
    return make(*comm, [=] {
        const std::lock_guard<std::mutex> lock(comms().mutex);
        *window = reinterpret_cast<nccl::Window>(comm->next_window++);
        comm->windows[*window] = {static_cast<const char *>(pointer), bytes};
        return nccl::success;
    });
}

int ncclCommWindowDeregister(nccl::Comm comm, nccl::Window window) {
    CALL(ncclCommWindowDeregister);
    if (!usable(comm, "ncclCommWindowDeregister()")) return nccl::invalid_argument;
    const std::lock_guard<std::mutex> lock(comms().mutex);
    return comm->windows.erase(window) == 1 ? nccl::success : nccl::invalid_argument;
}

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

const char *ncclGetErrorString(int result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result < 8 ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(nccl::Comm comm) {
    if (comm == nullptr) return "";
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    thread_local std::string text;
    text = comm->last_error;
    return text.c_str();
}

}  // extern "C"
