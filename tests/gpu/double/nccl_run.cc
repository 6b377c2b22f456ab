// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The work of NCCL on a stream.
#include <chrono>
#include <cstring>

#include "gpu/double/nccl_group.h"

namespace gpu_double {
namespace {

// Work that a stream has been given. It ends with this object: a device that has failed runs none.
class Outstanding {
public:
    explicit Outstanding(ncclComm &comm) : comm_(comm) { add(1); }
    ~Outstanding() { add(-1); }
    Outstanding(const Outstanding &) = delete;
    Outstanding &operator=(const Outstanding &) = delete;

private:
    void add(int works) {
        const std::lock_guard<std::mutex> lock(comm_.group->mutex);
        comm_.outstanding += works;
        comm_.group->changed.notify_all();
    }

    ncclComm &comm_;
};

std::vector<Access> accesses_of(const Call &call, const ncclComm &comm) {
    const auto [source_bytes, output_bytes] = sizes(call, comm);
    return {{call.source, source_bytes, false}, {call.output, output_bytes, true}};
}

// Waits until `ready`, under the lock of the group; `broken`: never. Returns false if the
// communicator was aborted or revoked, or if the wait took too long.
template <typename Ready>
bool wait(std::unique_lock<std::mutex> &lock, ncclComm &comm, bool broken, const std::string &what,
          const Ready &ready) {
    const auto limit = std::chrono::steady_clock::now() +
                       std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                           std::chrono::duration<double>(patience_seconds()));
    const bool in_time = comm.group->changed.wait_until(
        lock, limit, [&] { return comm.ends_work() || (!broken && ready()); });
    if (comm.ends_work()) return false;
    if (in_time) return true;
    violation("rank " + std::to_string(comm.rank) + " waits too long in " + what + ": a deadlock");
    comm.error = nccl::internal_error;
    return false;
}

void run_collective(ncclComm &comm, const Call &call, std::uint64_t number) {
    Group &group = *comm.group;
    std::unique_lock<std::mutex> lock(group.mutex);
    if (comm.ends_work()) return;
    const bool broken = comm.pending_break != 0;
    if (broken) comm.error = comm.pending_break;
    Meeting &meeting = group.meetings[number];
    meeting.calls.resize(group.members.size());
    if (!broken) {
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
    wait(lock, comm, broken, describe(call), [&] { return meeting.done; });
}

void run_messages(ncclComm &comm, const std::vector<Call> &calls) {
    Group &group = *comm.group;
    std::unique_lock<std::mutex> lock(group.mutex);
    if (comm.ends_work()) return;
    const bool broken = comm.pending_break != 0;
    if (broken) comm.error = comm.pending_break;
    std::vector<std::shared_ptr<Message>> sent;
    for (const Call &call : calls) {
        if (call.kind != Kind::send || broken) continue;
        sent.push_back(std::make_shared<Message>(Message{call, false}));
        group.messages[{comm.rank, call.peer}].push_back(sent.back());
    }
    group.changed.notify_all();
    for (const Call &call : calls) {
        if (call.kind != Kind::receive) continue;
        auto &queue = group.messages[{call.peer, comm.rank}];
        if (!wait(lock, comm, broken, describe(call), [&] { return !queue.empty(); })) return;
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
        if (!wait(lock, comm, broken, describe(message->call), [&] { return message->taken; }))
            return;
}

}  // namespace

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
    const auto prepare = [=, graph = comm->graphs]() -> std::function<void()> {
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
        return [=, outstanding = std::make_shared<Outstanding>(*comm)] {
            for (const auto &[number, call] : collectives) run_collective(*comm, call, number);
            if (!messages.empty()) run_messages(*comm, messages);
        };
    };
    return enqueue(stream, name, accesses, prepare, comm->device);
}

}  // namespace gpu_double
