// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The registered memory of a device communicator. ncclMemAlloc() itself falls back to cudaMalloc()
// where the device has no memory that can be shared.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "comm/agree.h"
#include "gpu/device_communicator.h"
#include "gpu/relaxed_capture.h"

namespace vescomm::internal {

std::uint64_t registered_bytes(std::uint64_t bytes) {
    const std::uint64_t alignment = nccl::window_alignment;
    const std::uint64_t parts = bytes / alignment + (bytes % alignment != 0 ? 1 : 0);
    if (parts > UINT64_MAX / alignment)
        throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                    std::to_string(bytes) + " bytes of device memory cannot be allocated");
    return std::max<std::uint64_t>(parts, 1) * alignment;
}

void *DeviceCommunicator::allocate(std::uint64_t bytes) {
    const RelaxedCapture relaxed(libraries_.cuda);
    require_same(*comm_, "device memory allocation", comm_->deadline(),
                 {{"bytes", std::to_string(bytes)}});
    void *pointer = nullptr;
    DeviceMemory memory;
    try {
        agree(*comm_, "device memory allocation", comm_->deadline(), [&] {
            memory.bytes = registered_bytes(bytes);
            const auto result = libraries_.nccl.mem_alloc(&pointer, memory.bytes);
            if (result != nccl::success)
                throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                            std::to_string(bytes) +
                                " bytes of device memory cannot be allocated: " + reason(result) +
                                "; see how much of it other programs use, and its size");
            return std::string();
        });
    } catch (...) {
        // Another rank has none.
        if (pointer != nullptr) release(pointer, {});
        throw;
    }
    memory.number = allocations_++;
    DeviceMemory &kept = memories_.emplace(pointer, memory).first->second;
    register_memory(pointer, kept);
    if (why_no_peers_.empty()) find_peers(kept);
    return pointer;
}

void DeviceCommunicator::find_peers(DeviceMemory &memory) {
    const char *label = "device memory allocation";
    // The memory of all ranks is registered when all have come.
    const auto first_reason = [&](const std::vector<std::string> &reasons) {
        for (const std::string &one : reasons)
            if (!one.empty()) return one;
        return std::string();
    };
    std::vector<char *> peers;
    const bool window = memory.window != nullptr;
    if (!first_reason(agree(*comm_, label, comm_->deadline(), [&] {
             return std::string(window ? "" : "no window");
         })).empty())
        return;
    const auto reasons = agree(*comm_, label, comm_->deadline(), [&] {
        for (int rank = 0; rank < ranks(); ++rank) {
            void *address = nullptr;
            const auto result =
                libraries_.nccl.get_peer_device_pointer(memory.window, 0, rank, &address);
            if (result != nccl::success || address == nullptr) return std::string("no address");
            peers.push_back(static_cast<char *>(address));
        }
        return std::string();
    });
    if (first_reason(reasons).empty()) memory.peers = std::move(peers);
}

void DeviceCommunicator::link_peers() {
    const auto reasons = agree(*comm_, "device communicator creation", comm_->deadline(),
                               [&] { return PeerLinks::obstacle(*this); });
    for (std::size_t rank = 0; rank < reasons.size(); ++rank)
        if (!reasons[rank].empty()) {
            why_no_peers_ = reasons[rank];
            if (reasons[rank] != reasons[0])
                why_no_peers_ += " (rank " + std::to_string(rank) + ")";
            return;
        }
    why_no_peers_.clear();
    void *flags = allocate(PeerLinks::bytes(ranks()));
    const DeviceMemory &memory = *find_memory(flags);
    if (memory.peers.empty()) {
        why_no_peers_ = "not all ranks can address one another's memory";
        release(flags, memory);  // no work has used it
        memories_.erase(flags);
        return;
    }
    // The flags of all ranks are zero before any kernel writes one.
    agree(*comm_, "device communicator creation", comm_->deadline(), [&] {
        peer_links_ = std::make_unique<PeerLinks>(*this, flags, memory);
        nccl_.set_end_word(peer_links_->end_word());
        return std::string();
    });
}

void DeviceCommunicator::register_memory(void *pointer, DeviceMemory &memory) {
    call("ncclCommWindowRegister()", [&] {
        return libraries_.nccl.comm_window_register(nccl(), pointer, memory.bytes, &memory.window,
                                                    nccl::window_symmetric);
    });
    // NCCL may return before it writes the window, in a thread of its own, if the communicator is
    // the caller's and does not block.
    require(settle("ncclCommWindowRegister()"), "ncclCommWindowRegister()");
    // Without symmetric memory NCCL succeeds. It then registers nothing (dev_runtime.cc of NCCL
    // 2.30), or locally (earlier versions).
    if (memory.window != nullptr) return;
    require(libraries_.nccl.comm_register(nccl(), pointer, memory.bytes, &memory.registration),
            "ncclCommRegister()");
}

const DeviceMemory *DeviceCommunicator::find_memory(void *pointer) const {
    const auto found = memories_.find(pointer);
    return found == memories_.end() ? nullptr : &found->second;
}

DeviceMemory *DeviceCommunicator::find_memory(void *pointer) {
    return const_cast<DeviceMemory *>(std::as_const(*this).find_memory(pointer));
}

DeviceCall::Place DeviceCommunicator::place_of(const void *pointer) const {
    const auto after = memories_.upper_bound(const_cast<void *>(pointer));
    if (after == memories_.begin()) return {};
    const auto &[begin, memory] = *std::prev(after);
    const auto offset = static_cast<std::uint64_t>(static_cast<const char *>(pointer) -
                                                   static_cast<const char *>(begin));
    if (offset >= memory.bytes) return {};
    return {DeviceCall::Place::In::memory, memory.number, offset};
}

void DeviceCommunicator::free(void *pointer, int users,
                              const std::optional<DeviceCall::Place> &freed) {
    const DeviceMemory *memory = find_memory(pointer);
    if (memory == nullptr)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("vescomm_gpu_mfree: no memory of vescomm_gpu_malloc() on this "
                                "communicator begins at {}",
                                fmt::ptr(pointer)));
    if (const int left = memory->buffers - users; left > 0)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    fmt::format("vescomm_gpu_mfree: the memory at {} is used by {} device {}; free "
                                "{} first",
                                fmt::ptr(pointer), left, left == 1 ? "buffer" : "buffers",
                                left == 1 ? "it" : "them"));
    const RelaxedCapture relaxed(libraries_.cuda);
    // NCCL unmaps the memory without waiting for work that uses it.
    if (!usable()) {
        const bool broken = comm_->failure().broken();
        if (broken) nccl_.abort();
        if (device_is_idle(broken ? end_limit(*comm_) : comm_->deadline()))
            release(pointer, *memory);
        else log_leak(*comm_, "memory", "work of the device may still use it");
    } else {
        if (wait_for_device("the work of the device, to free memory") == cuda::capture_unsupported)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "memory cannot be freed while a stream of the device is captured into a "
                        "graph; end the capture first");
        begin_call({.kind = DeviceCall::Kind::free, .data = freed.value_or(place_of(pointer))});
        release(pointer, *memory);
        memories_.erase(pointer);
        return check_failures();
    }
    memories_.erase(pointer);
}

// Memory that stays registered is not freed: NCCL and other devices may use it.
void DeviceCommunicator::release(void *pointer, const DeviceMemory &memory) noexcept {
    nccl::Result result = nccl::success;
    const char *function = "";
    if (nccl_.usable() && memory.window != nullptr) {
        function = "ncclCommWindowDeregister()";
        result =
            watched([&] { return libraries_.nccl.comm_window_deregister(nccl(), memory.window); });
    } else if (nccl_.usable() && memory.registration != nullptr) {
        function = "ncclCommDeregister()";
        result = libraries_.nccl.comm_deregister(nccl(), memory.registration);
    }
    if (!failed(result) || !nccl_.usable()) {
        libraries_.nccl.mem_free(pointer);
        return;
    }
    log_leak(*comm_, "its memory", "NCCL cannot end its registration");
    try {
        comm_->fail(status_of(result), failure_of(function, result));
    } catch (const std::bad_alloc &) {
        comm_->run_out();
    }
}

}  // namespace vescomm::internal
