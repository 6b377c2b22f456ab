// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of NCCL, and its registration. With GPU_DOUBLE_SYMMETRIC=0 the devices have no symmetric
// memory: ncclCommWindowRegister() succeeds, and registers nothing, as in NCCL.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gpu/double/nccl_group.h"

namespace gpu_double {
namespace {

bool symmetric_memory() {
    const char *text = std::getenv("GPU_DOUBLE_SYMMETRIC");
    return text == nullptr || std::strcmp(text, "0") != 0;
}

bool overlaps(const ByteRange &range, const char *begin, std::size_t bytes) {
    return range.begin < begin + bytes && begin < range.begin + range.bytes;
}

bool contains(const ByteRange &range, const char *begin, std::size_t bytes) {
    return begin >= range.begin && begin + bytes <= range.begin + range.bytes;
}

}  // namespace

std::string still_registered(const void *begin, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    const auto *first = static_cast<const char *>(begin);
    for (const ncclComm *comm : comms().all) {
        for (const auto &[window, range] : comm->windows)
            if (overlaps(range, first, bytes))
                return "device memory is freed while it is a registered window of rank " +
                       std::to_string(comm->rank);
        for (const auto &[registration, range] : comm->registrations)
            if (overlaps(range, first, bytes))
                return "device memory is freed while it is registered with rank " +
                       std::to_string(comm->rank);
    }
    return {};
}

Registered find_registered(const ncclComm &comm, const void *begin, std::size_t bytes) {
    const auto *first = static_cast<const char *>(begin);
    for (const auto &[window, range] : comm.windows)
        if (contains(range, first, bytes)) return {true, true, first - range.begin};
    for (const auto &[registration, range] : comm.registrations)
        if (contains(range, first, bytes)) return {true, false, 0};
    return {};
}

bool is_mapped(int device, const void *begin, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(comms().mutex);
    for (const ncclComm *comm : comms().all) {
        if (comm->device != device) continue;
        for (const auto &[window, ranges] : comm->mapped)
            for (const ByteRange &range : ranges)
                if (contains(range, static_cast<const char *>(begin), bytes)) return true;
    }
    return false;
}

}  // namespace gpu_double

using namespace gpu_double;

#define CALL(function) \
    if (const int result = injected_result(#function)) return result

extern "C" {

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
    *window = nullptr;
    if (!symmetric_memory()) return nccl::success;
    return make(*comm, [=] {
        const std::lock_guard<std::mutex> lock(comms().mutex);
        static std::uint64_t windows = 0;  // a number names the window of one rank
        *window = reinterpret_cast<nccl::Window>(++windows);
        comm->window_order.push_back(*window);
        comm->windows[*window] = {static_cast<const char *>(pointer), bytes};
        return nccl::success;
    });
}

int ncclCommWindowDeregister(nccl::Comm comm, nccl::Window window) {
    CALL(ncclCommWindowDeregister);
    if (!usable(comm, "ncclCommWindowDeregister()")) return nccl::invalid_argument;
    const std::lock_guard<std::mutex> lock(comms().mutex);
    comm->mapped.erase(window);
    return comm->windows.erase(window) == 1 ? nccl::success : nccl::invalid_argument;
}

int ncclGetPeerDevicePointer(nccl::Window window, std::size_t offset, int peer, void **pointer) {
    CALL(ncclGetPeerDevicePointer);
    const std::lock_guard<std::mutex> lock(comms().mutex);
    for (ncclComm *comm : comms().all) {
        if (!comm->windows.contains(window)) continue;
        // All ranks register their windows in the same order.
        const auto &order = comm->window_order;
        const auto number = std::find(order.begin(), order.end(), window) - order.begin();
        const ncclComm *other = comm->group->members[static_cast<std::size_t>(peer)];
        if (std::ssize(other->window_order) <= number) {
            violation("ncclGetPeerDevicePointer() before rank " + std::to_string(peer) +
                      " has registered its window");
            return nccl::invalid_usage;
        }
        const auto found =
            other->windows.find(other->window_order[static_cast<std::size_t>(number)]);
        if (found == other->windows.end()) return nccl::invalid_argument;
        comm->mapped[window].push_back(found->second);
        *pointer = const_cast<char *>(found->second.begin) + offset;
        return nccl::success;
    }
    return nccl::invalid_argument;
}

int ncclCommRegister(nccl::Comm comm, void *pointer, std::size_t bytes, void **registration) {
    CALL(ncclCommRegister);
    if (!usable(comm, "ncclCommRegister()")) return nccl::invalid_argument;
    if (!is_device_address(pointer))
        return refuse(*comm, nccl::invalid_argument, "an address that is not in device memory");
    const std::lock_guard<std::mutex> lock(comms().mutex);
    *registration = reinterpret_cast<void *>(comm->next_window++);
    comm->registrations[*registration] = {static_cast<const char *>(pointer), bytes};
    return nccl::success;
}

int ncclCommDeregister(nccl::Comm comm, void *registration) {
    CALL(ncclCommDeregister);
    if (!usable(comm, "ncclCommDeregister()")) return nccl::invalid_argument;
    const std::lock_guard<std::mutex> lock(comms().mutex);
    return comm->registrations.erase(registration) == 1 ? nccl::success : nccl::invalid_argument;
}

}  // extern "C"
