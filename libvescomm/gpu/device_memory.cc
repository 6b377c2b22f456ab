// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The registered memory of a device communicator. ncclMemAlloc() itself falls back to cudaMalloc()
// where the device has no memory that can be shared.
#include <algorithm>

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
                                " bytes of device memory cannot be allocated: " + reason(result));
            return std::string();
        });
    } catch (...) {
        // Another rank has none.
        if (pointer != nullptr) release(pointer, {});
        throw;
    }
    memory.number = allocations_++;
    register_memory(pointer, memories_.emplace(pointer, memory).first->second);
    return pointer;
}

void DeviceCommunicator::register_memory(void *pointer, DeviceMemory &memory) {
    call("ncclCommWindowRegister()", [&] {
        return libraries_.nccl.comm_window_register(nccl_, pointer, memory.bytes, &memory.window,
                                                    nccl::window_symmetric);
    });
    // NCCL may return before it writes the window, in a thread of its own, if the communicator is
    // the caller's and does not block.
    require(settle("ncclCommWindowRegister()"), "ncclCommWindowRegister()");
    // Without symmetric memory NCCL succeeds. It then registers nothing (dev_runtime.cc of NCCL
    // 2.30), or locally (earlier versions).
    if (memory.window != nullptr) return;
    require(libraries_.nccl.comm_register(nccl_, pointer, memory.bytes, &memory.registration),
            "ncclCommRegister()");
}

DeviceMemory *DeviceCommunicator::find_memory(void *pointer) {
    const auto found = memories_.find(pointer);
    return found == memories_.end() ? nullptr : &found->second;
}

void DeviceCommunicator::free(void *pointer, int users) {
    const DeviceMemory *memory = find_memory(pointer);
    if (memory == nullptr)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                    "no memory of vescomm_gpu_malloc() on this communicator begins at this "
                    "address");
    if (memory->buffers > users)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "this memory is used by " +
                                                        std::to_string(memory->buffers - users) +
                                                        " device buffers; free them first");
    const RelaxedCapture relaxed(libraries_.cuda);
    // NCCL unmaps the memory without waiting for work that uses it.
    if (!usable()) {
        if (comm_->failure().broken()) abort_nccl();
        if (device_is_idle()) release(pointer, *memory);
        else log_leak("memory", "work of the device may still use it");
    } else {
        if (wait_for_device("the work of the device, to free memory") == cuda::capture_unsupported)
            throw Error(VESCOMM_ERROR_INVALID_ARGUMENT,
                        "memory cannot be freed while a stream of the device is captured into a "
                        "graph; end the capture first");
        release(pointer, *memory);
    }
    memories_.erase(pointer);
}

void DeviceCommunicator::release(void *pointer, const DeviceMemory &memory) noexcept {
    if (has_nccl() && memory.window != nullptr)
        watched([&] { return libraries_.nccl.comm_window_deregister(nccl_, memory.window); });
    if (has_nccl() && memory.registration != nullptr)
        libraries_.nccl.comm_deregister(nccl_, memory.registration);
    libraries_.nccl.mem_free(pointer);
}

}  // namespace vescomm::internal
