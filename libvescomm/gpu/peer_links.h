// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/cuda_functions.h"
#include "gpu/kernels/parameters.h"

namespace vescomm::internal {

class DeviceCommunicator;
struct DeviceMemory;

// Flags by which blocks of kernels meet that read the memory of other ranks, and a word of the host
// that ends their waits.
class PeerLinks {
public:
    // The reason why this rank cannot use such kernels; empty: it can.
    static std::string obstacle(const DeviceCommunicator &comm);
    // Collective, blocking. `flags`: bytes() of memory of the communicator, with the addresses of
    // all ranks. Throws as DeviceCommunicator::wait().
    PeerLinks(DeviceCommunicator &comm, void *flags, const DeviceMemory &memory);
    ~PeerLinks();
    PeerLinks(const PeerLinks &) = delete;
    PeerLinks &operator=(const PeerLinks &) = delete;

    static std::uint64_t bytes(int ranks);
    const gpu_kernel::PeerBarrier &barrier() const { return barrier_; }
    // In host memory: another value than 0 ends the waits of kernels, also of those that are
    // launched later.
    std::uint32_t *end_word() const { return end_; }
    // The word stays until the process ends: kernels may still read it.
    void leak() noexcept { end_ = nullptr; }

private:
    const cuda::Runtime &cuda_;
    gpu_kernel::PeerBarrier barrier_{};
    std::uint32_t *end_ = nullptr;  // in host memory
};

}  // namespace vescomm::internal
