// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The functions of NCCL. The variable GPU_DOUBLE_NCCL is the version that ncclGetVersion() returns
// (22809).
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "gpu/double/nccl_group.h"

namespace gpu_double {

Comms &comms() {
    static Comms *const all = new Comms;
    return *all;
}

nccl::Result make(ncclComm &comm, const std::function<nccl::Result()> &call) {
    {
        std::unique_lock<std::mutex> lock(comm.group->mutex);
        if (std::exchange(comm.held, false)) {
            comm.group->changed.wait(lock, [&] { return comm.ends_work(); });
            return comm.error = nccl::system_error;
        }
        const int delay = comm.blocking ? 0 : comm.next_delay++ % 3;
        if (delay > 0) {
            comm.questions_left = delay;
            comm.in_progress.push_back(call);
            return nccl::in_progress;
        }
    }
    return call();
}

nccl::Result refuse(ncclComm &comm, nccl::Result result, const std::string &why) {
    const std::lock_guard<std::mutex> lock(comm.group->mutex);
    comm.last_error = why;
    return result;
}

bool wait_for_work(std::unique_lock<std::mutex> &lock, ncclComm &comm) {
    const std::chrono::duration<double> seconds(patience_seconds());
    return comm.group->changed.wait_for(lock, seconds, [&] { return comm.outstanding == 0; });
}

bool valid(const nccl::Config *config) {
    if (config == nullptr) return true;
    std::size_t bytes = config->version >= 22800 ? nccl::oldest_config_bytes : 0;
    for (const nccl::ConfigVersion &one : nccl::config_versions)
        if (config->version >= static_cast<unsigned>(one.version))
            bytes = std::max(bytes, one.bytes);
    if (config->magic != 0xcafebeef || config->size != bytes) return false;
    nccl::Config seen;
    std::memcpy(static_cast<void *>(&seen), config, config->size);
    if (config->version < 23005) seen.graph_stream_ordering = INT_MIN;  // as NCCL does
    const std::lock_guard<std::mutex> lock(comms().mutex);
    comms().last_config = seen;
    return true;
}

bool exists(const ncclComm *comm) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    const auto &all = comms().all;
    return std::find(all.begin(), all.end(), comm) != all.end() && !comm->destroyed;
}

bool usable(const ncclComm *comm, const char *function) {
    if (!exists(comm)) {
        violation(std::string(function) + " on a communicator that does not exist any more");
        return false;
    }
    return true;
}

namespace {

// The unique ids of a process begin with it.
std::string prefix_of_ids() {
    return "double " + std::to_string(getpid()) + " ";
}

void end_comm(ncclComm &comm, const char *function) {
    if (!group_is_open().empty())
        violation(std::string(function) + " within an open group: ncclGroupEnd() is missing");
    {
        const std::lock_guard<std::mutex> lock(comm.group->mutex);
        if (comm.queued > 0)
            violation(std::string(function) + " of a communicator with calls in an open group");
    }
    if ((!comm.windows.empty() || !comm.registrations.empty()) && !comm.aborted)
        violation(std::string(function) + " of a communicator with registered memory");
    const std::lock_guard<std::mutex> lock(comms().mutex);
    comm.windows.clear();
    comm.registrations.clear();
    comm.mapped.clear();
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

void hold_call(int device) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    for (ncclComm *comm : comms().all) {
        if (comm->device != device || comm->destroyed) continue;
        const std::lock_guard<std::mutex> group_lock(comm->group->mutex);
        comm->held = true;
    }
}

void kill_device(int device) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    for (ncclComm *comm : comms().all) {
        if (comm->device != device || comm->destroyed) continue;
        const std::lock_guard<std::mutex> group_lock(comm->group->mutex);
        comm->dead = true;
        comm->group->changed.notify_all();
    }
}

bool end_communicators(int process) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    bool died = false;
    for (ncclComm *comm : comms().all) {
        if (comm->process != process || comm->destroyed) continue;
        const std::lock_guard<std::mutex> group_lock(comm->group->mutex);
        died = died || !comm->aborted;
        comm->dead = comm->process_ended = true;
        comm->group->changed.notify_all();
    }
    return died;
}

nccl::Config last_config() {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    return comms().last_config;
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
    const std::string text = prefix_of_ids() + std::to_string(comms().next_id++);
    std::memcpy(id->internal, text.data(), text.size());
    return nccl::success;
}

int ncclCommInitRankConfig(nccl::Comm *out, int ranks, nccl::UniqueId id, int rank,
                           nccl::Config *config) {
    CALL(ncclCommInitRankConfig);
    set_release_check(still_registered);
    set_wait_check(group_is_open);
    set_mapping_check(is_mapped);
    if (!valid(config)) return nccl::invalid_argument;
    if (ranks < 1 || rank < 0 || rank >= ranks) return nccl::invalid_argument;
    if (!std::string_view(id.internal).starts_with(prefix_of_ids())) {
        std::fputs(
            "gpu double: a communicator has ranks in other processes, which only programs of "
            "gpu_double_run can have\n",
            stderr);
        return nccl::invalid_usage;
    }
    auto *comm = new ncclComm;
    comm->rank = rank;
    comm->process = current_process();
    cudaGetDevice(&comm->device);
    {
        const std::lock_guard<std::mutex> lock(comms().mutex);
        auto &group = comms().groups[std::string(id.internal, sizeof id.internal)];
        if (!group) group = std::make_shared<Group>(ranks);
        comm->group = group;
        comm->dead = comm->process_ended = has_ended(comm->process);
        comms().all.push_back(comm);
    }
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
    // The variable has precedence, as in NCCL.
    if (const char *text = std::getenv("NCCL_COMM_BLOCKING")) comm->blocking = *text != '0';
    if (!comm->blocking) return nccl::in_progress;
    group.changed.wait(lock, [&] { return comm->aborted || comm->dead || group.arrived == ranks; });
    return comm->error;
}

int ncclCommFinalize(nccl::Comm comm) {
    CALL(ncclCommFinalize);
    if (!usable(comm, "ncclCommFinalize()")) return nccl::invalid_argument;
    std::unique_lock<std::mutex> lock(comm->group->mutex);
    if (comm->finalizing) return nccl::invalid_argument;
    if (comm->revoked) {
        violation("ncclCommFinalize() of a revoked communicator");
        return nccl::invalid_usage;
    }
    comm->finalizing = true;
    // It ends when all ranks that live have called it, and their graphs are destroyed.
    Group &group = *comm->group;
    ++group.finalized;
    group.changed.notify_all();
    if (!comm->blocking) return nccl::in_progress;
    while (!comm->aborted && (!group.all_finalized() || comm->in_graphs()))
        group.changed.wait_for(lock, std::chrono::milliseconds(1));
    return nccl::success;
}

int ncclCommDestroy(nccl::Comm comm) {
    CALL(ncclCommDestroy);
    if (!usable(comm, "ncclCommDestroy()")) return nccl::invalid_argument;
    end_comm(*comm, "ncclCommDestroy()");
    return nccl::success;
}

int ncclCommRevoke(nccl::Comm comm, int flags) {
    CALL(ncclCommRevoke);
    if (flags != 0 || !usable(comm, "ncclCommRevoke()")) return nccl::invalid_argument;
    std::unique_lock<std::mutex> lock(comm->group->mutex);
    if (comm->finalizing) return nccl::invalid_argument;
    if (comm->revoked) {
        violation("ncclCommRevoke() of a communicator that is revoked");
        return nccl::invalid_argument;
    }
    comm->revoked = true;
    comm->group->changed.notify_all();
    // It ends when the work has ended, which may wait for earlier work of its streams.
    if (!wait_for_work(lock, *comm)) {
        violation("ncclCommRevoke() waits too long for the work of the streams: a deadlock");
        return nccl::system_error;
    }
    comm->error = nccl::success;
    return nccl::success;
}

int ncclCommAbort(nccl::Comm comm) {
    CALL(ncclCommAbort);
    if (!usable(comm, "ncclCommAbort()")) return nccl::invalid_argument;
    {
        const std::lock_guard<std::mutex> lock(comm->group->mutex);
        if (comm->deriving > 0)
            violation("ncclCommAbort() of a communicator while another thread creates one from it");
        comm->aborted = true;
        if (!comm->finalizing) ++comm->group->finalized;
        comm->group->changed.notify_all();
    }
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds());
    // NCCL does not wait for graphs after a revocation.
    while (!comm->revoked && comm->in_graphs() && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (comm->revoked && comm->in_graphs())
        violation("ncclCommAbort() of a revoked communicator whose calls are in graphs");
    else if (comm->in_graphs())
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
    const bool ends =
        comm->finalizing && !comm->blocking && (!group.all_finalized() || comm->in_graphs());
    const bool ready = group.arrived == group.ranks() && !ends && comm->questions_left == 0;
    *error = comm->error != nccl::success ? comm->error : ready ? nccl::success : nccl::in_progress;
    return nccl::success;
}

int ncclCommCount(nccl::Comm comm, int *count) {
    CALL(ncclCommCount);
    if (!exists(comm)) return nccl::invalid_argument;
    *count = comm->group->ranks();
    return nccl::success;
}

int ncclCommUserRank(nccl::Comm comm, int *rank) {
    CALL(ncclCommUserRank);
    if (!exists(comm)) return nccl::invalid_argument;
    *rank = comm->rank;
    return nccl::success;
}

int ncclCommCuDevice(nccl::Comm comm, int *device) {
    CALL(ncclCommCuDevice);
    if (!exists(comm)) return nccl::invalid_argument;
    *device = comm->device;
    return nccl::success;
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
    if (!exists(comm)) return "";
    const std::lock_guard<std::mutex> lock(comm->group->mutex);
    thread_local std::string text;
    text = comm->last_error;
    return text.c_str();
}

}  // extern "C"
