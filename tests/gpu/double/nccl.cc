// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of NCCL. The variable GPU_DOUBLE_NCCL is the version that ncclGetVersion() returns
// (22809).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
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

// Bytes of the source and of the output of a call, on its rank.
std::pair<std::size_t, std::size_t> sizes(const Call &call, const ncclComm &comm) {
    const std::size_t block = call.count * bytes_of(call.type);
    const std::size_t all = block * static_cast<std::size_t>(comm.group->ranks());
    const bool root = call.peer == comm.rank;
    switch (call.kind) {
        case Kind::all_gather:
            return {block, all};
        case Kind::reduce_scatter:
            return {all, block};
        case Kind::all_reduce:
            return {block, block};
        case Kind::broadcast:
            return {root ? block : 0, block};
        case Kind::reduce:
            return {block, root ? block : 0};
        case Kind::send:
            return {block, 0};
        case Kind::receive:
            return {0, block};
    }
    return {0, 0};
}

// A source and an output overlap only in place.
void check_overlap(const Call &call, const ncclComm &comm) {
    const auto [source_bytes, output_bytes] = sizes(call, comm);
    if (source_bytes == 0 || output_bytes == 0) return;
    const auto *source = static_cast<const char *>(call.source);
    const auto *output = static_cast<const char *>(call.output);
    if (source + source_bytes <= output || output + output_bytes <= source) return;
    const std::size_t own = static_cast<std::size_t>(comm.rank) * call.count * bytes_of(call.type);
    const bool in_place = call.kind == Kind::all_gather       ? source == output + own
                          : call.kind == Kind::reduce_scatter ? output == source + own
                                                              : source == output;
    if (!in_place) violation(describe(call) + ": source and output overlap, but not in place");
}

std::vector<Access> accesses_of(const Call &call, const ncclComm &comm) {
    const auto [source_bytes, output_bytes] = sizes(call, comm);
    return {{call.source, source_bytes, false}, {call.output, output_bytes, true}};
}

// ---- work of a stream ----

// Waits until `ready`, under the lock of the group. Returns false if the communicator was aborted,
// or if the wait took too long.
template <typename Ready>
bool wait(std::unique_lock<std::mutex> &lock, ncclComm &comm, const std::string &what,
          const Ready &ready) {
    const auto limit = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(patience_seconds()));
    const bool in_time = comm.group->changed.wait_until(
        lock, limit, [&] { return comm.aborted || (comm.pending_break == 0 && ready()); });
    if (comm.aborted) return false;
    if (in_time) return true;
    violation("rank " + std::to_string(comm.rank) + " waits too long in " + what + ": a deadlock");
    comm.error = nccl::internal_error;
    return false;
}

void run_collective(ncclComm &comm, const Call &call, std::uint64_t number) {
    Group &group = *comm.group;
    std::unique_lock<std::mutex> lock(group.mutex);
    if (comm.aborted) return;
    if (comm.pending_break != 0) comm.error = comm.pending_break;
    Meeting &meeting = group.meetings[number];
    meeting.calls.resize(group.members.size());
    if (comm.pending_break == 0) {
        meeting.calls[static_cast<std::size_t>(comm.rank)] = std::make_unique<Call>(call);
        if (++meeting.arrived == group.ranks()) {
            const std::string why = execute(meeting);
            if (!why.empty()) {
                violation(why);
                for (ncclComm *member : group.members) member->error = nccl::internal_error;
            }
            meeting.done = true;
            group.changed.notify_all();
        }
    }
    wait(lock, comm, describe(call), [&] { return meeting.done; });
}

void run_messages(ncclComm &comm, const std::vector<Call> &calls) {
    Group &group = *comm.group;
    std::unique_lock<std::mutex> lock(group.mutex);
    if (comm.aborted) return;
    if (comm.pending_break != 0) comm.error = comm.pending_break;
    std::vector<std::shared_ptr<Message>> sent;
    for (const Call &call : calls) {
        if (call.kind != Kind::send || comm.pending_break != 0) continue;
        sent.push_back(std::make_shared<Message>(Message{call, false}));
        group.messages[{comm.rank, call.peer}].push_back(sent.back());
    }
    group.changed.notify_all();
    for (const Call &call : calls) {
        if (call.kind != Kind::receive) continue;
        auto &queue = group.messages[{call.peer, comm.rank}];
        if (!wait(lock, comm, describe(call), [&] { return !queue.empty(); })) return;
        const auto message = queue.front();
        queue.pop_front();
        const std::size_t bytes = call.count * bytes_of(call.type);
        if (message->call.count * bytes_of(message->call.type) != bytes) {
            violation("rank " + std::to_string(call.peer) + " sends " + describe(message->call) +
                      " and rank " + std::to_string(comm.rank) + " receives " + describe(call));
            comm.error = nccl::internal_error;
        } else std::memmove(host_view(call.output), host_view(message->call.source), bytes);
        message->taken = true;
        group.changed.notify_all();
    }
    for (const auto &message : sent)
        if (!wait(lock, comm, describe(message->call), [&] { return message->taken; })) return;
}

// Starts the calls of one group on one communicator.
cuda::Error start(ncclComm *comm, cuda::Stream stream, const std::vector<Call> &calls) {
    std::vector<Access> accesses;
    std::string name;
    for (const Call &call : calls) {
        if (call.count == 0) continue;
        for (const Access &access : accesses_of(call, *comm)) accesses.push_back(access);
        if (name.empty()) name = describe(call);
    }
    if (name.empty()) return cuda::success;
    // The calls of a group may run at the same time: they are one work.
    return enqueue(stream, name, accesses, [=]() -> std::function<void()> {
        // A collective takes its number when it is started, in the order of the host's calls.
        std::vector<std::pair<std::uint64_t, Call>> collectives;
        std::vector<Call> messages;
        {
            const std::lock_guard<std::mutex> lock(comm->group->mutex);
            for (const Call &call : calls) {
                if (call.count == 0) continue;
                if (call.is_message()) messages.push_back(call);
                else collectives.emplace_back(comm->next_collective++, call);
            }
        }
        return [=] {
            for (const auto &[number, call] : collectives) run_collective(*comm, call, number);
            if (!messages.empty()) run_messages(*comm, messages);
        };
    });
}

nccl::Result start_group() {
    const auto entries = std::exchange(open_group.entries, {});
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
        if (start(comm, stream, calls) != cuda::success) return nccl::unhandled_cuda_error;
    }
    return nccl::success;
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

nccl::Result call(const char *function, ncclComm *comm, cuda::Stream stream, Call made) {
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
    return open_group.depth > 0 ? nccl::success : start_group();
}

void end_comm(ncclComm &comm, const char *function) {
    if (open_group.depth > 0)
        violation(std::string(function) + " within an open group: ncclGroupEnd() is missing");
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
    end_comm(*comm, "ncclCommAbort()");
    return nccl::success;
}

int ncclCommGetAsyncError(nccl::Comm comm, nccl::Result *error) {
    CALL(ncclCommGetAsyncError);
    if (!usable(comm, "ncclCommGetAsyncError()")) return nccl::invalid_argument;
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    const Group &group = *comm->group;
    const bool waits = comm->finalizing && !comm->blocking && group.finalized < group.ranks();
    const bool ready = group.arrived == group.ranks() && !waits;
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
    void *made = allocate(bytes, true);
    if (made == nullptr) return nccl::unhandled_cuda_error;
    *pointer = made;
    return nccl::success;
}

int ncclMemFree(void *pointer) {
    CALL(ncclMemFree);
    if (cudaDeviceSynchronize() != cuda::success) return nccl::unhandled_cuda_error;
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
    const std::lock_guard<std::mutex> lock(comms().mutex);
    *window = reinterpret_cast<nccl::Window>(comm->next_window++);
    comm->windows[*window] = {static_cast<const char *>(pointer), bytes};
    return nccl::success;
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
    CALL(ncclGroupEnd);
    if (open_group.depth == 0) {
        violation("ncclGroupEnd() without ncclGroupStart()");
        return nccl::invalid_usage;
    }
    return --open_group.depth > 0 ? nccl::success : start_group();
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
