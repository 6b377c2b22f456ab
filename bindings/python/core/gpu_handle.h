// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm.h"
#include "vescomm/gpu.h"

namespace vescomm::python {

// Owner of a device communicator. Buffers share it. The GIL guards it.
struct GpuHandle {
    std::shared_ptr<CommHandle> comm;
    vescomm_gpu_comm_t *gpu = nullptr;
    int device = 0;
    int arrays = 0;  // that exist
    std::vector<vescomm_gpu_buffer_t *> dropped;  // buffers without a free()

    GpuHandle() = default;
    GpuHandle(const GpuHandle &) = delete;
    GpuHandle &operator=(const GpuHandle &) = delete;
    // The end of a communicator that works waits for all ranks. Without a free() it stays until
    // the process ends.
    ~GpuHandle() {
        if (gpu != nullptr && !comm->broken()) return;
        vescomm_gpu_comm_free(gpu);
        free_dropped();
    }

    vescomm_gpu_comm_t *get() const {
        if (gpu == nullptr) refuse("the device communicator has been freed; create another one");
        return gpu;
    }
    void free() {
        if (gpu == nullptr) return;
        if (arrays > 0)
            refuse(std::to_string(arrays) +
                   " arrays of its buffers exist; drop them first, because the memory is freed");
        const vescomm_status_t status = comm->call([&] { return vescomm_gpu_comm_free(gpu); });
        gpu = nullptr;  // also after an error it does not exist any more
        try {
            check(status);
        } catch (...) {
            free_dropped();
            throw;
        }
        free_dropped();
    }

private:
    void free_dropped() {
        for (vescomm_gpu_buffer_t *buffer : dropped) vescomm_gpu_buffer_free(buffer);
        dropped.clear();
    }
};

// The base class of vescomm.gpu.Communicator.
struct Gpu {
    std::shared_ptr<GpuHandle> handle;

    template <typename Function>
    void run(Function &&function) const {
        // A destructor that runs within the call may free the communicator, which is null then.
        const std::shared_ptr<GpuHandle> held = handle;
        held->get();
        check(held->comm->call([&] { return function(held->gpu); }));
    }
};

using Name = std::optional<std::string>;

}  // namespace vescomm::python
