// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/peer_links.h"

#include <vector>

#include "base/error.h"
#include "gpu/device_communicator.h"
#include "gpu/kernel_library.h"

namespace vescomm::internal {
namespace {

std::size_t flag_words(int ranks) {
    return static_cast<std::size_t>(gpu_kernel::max_peer_blocks) * static_cast<std::size_t>(ranks);
}

// A stream of this object.
class OwnStream {
public:
    OwnStream(DeviceCommunicator &comm) : comm_(comm) {
        comm_.require_cuda(
            comm_.libraries().cuda.stream_create(&stream_, cuda::stream_non_blocking),
            "cudaStreamCreateWithFlags()");
    }
    ~OwnStream() { comm_.libraries().cuda.stream_destroy(stream_); }
    OwnStream(const OwnStream &) = delete;
    OwnStream &operator=(const OwnStream &) = delete;

    // Copies from the host, and waits.
    void write(void *to, const void *from, std::size_t bytes) {
        comm_.require_cuda(comm_.libraries().cuda.memcpy_async(to, from, bytes,
                                                               cuda::copy_host_to_device, stream_),
                           "cudaMemcpyAsync()");
        comm_.wait(stream_);
    }

private:
    DeviceCommunicator &comm_;
    cuda::Stream stream_ = nullptr;
};

}  // namespace

std::string PeerLinks::obstacle(const DeviceCommunicator &comm) {
    const GpuLibraries &libraries = comm.libraries();
    if (comm.ranks() == 1) return "there is one rank";
    if (comm.ranks() > gpu_kernel::max_peers)
        return "there are more than " + std::to_string(gpu_kernel::max_peers) + " ranks";
    if (libraries.nccl_version < nccl::version_with_peer_pointers ||
        libraries.nccl.get_peer_device_pointer == nullptr)
        return "NCCL before 2.29.2 has no addresses of other ranks' memory";
    if (comm.options().borrowed != nullptr && comm.options().method != "peer")
        return "the program may end its nccl_comm, and with it the memory of other ranks that "
               "kernels read; the method \"peer\" asks for them";
    try {
        kernel_library().preload();
    } catch (const Error &error) {
        return error.what();
    }
    return {};
}

std::uint64_t PeerLinks::bytes(int ranks) {
    return (flag_words(ranks) + 2 * gpu_kernel::max_peer_blocks) * sizeof(std::uint32_t);
}

PeerLinks::PeerLinks(DeviceCommunicator &comm, void *flags, const DeviceMemory &memory)
    : cuda_(comm.libraries().cuda) {
    const int ranks = comm.ranks();
    for (int rank = 0; rank < ranks; ++rank)
        barrier_.flags[rank] =
            reinterpret_cast<std::uint32_t *>(memory.peers[static_cast<std::size_t>(rank)]);
    barrier_.epochs = static_cast<std::uint32_t *>(flags) + flag_words(ranks);
    barrier_.ranks = ranks;
    barrier_.rank = comm.rank();
    const std::vector<char> zeros(bytes(ranks));
    OwnStream(comm).write(flags, zeros.data(), zeros.size());
    void *word = nullptr;
    comm.require_cuda(cuda_.host_alloc(&word, sizeof(std::uint32_t), cuda::host_mapped),
                      "cudaHostAlloc()");
    end_ = static_cast<std::uint32_t *>(word);
    *end_ = 0;
    barrier_.end = end_;  // the device has the same address: memory is unified since CUDA 4
}

PeerLinks::~PeerLinks() {
    if (end_ != nullptr) cuda_.free_host(end_);
}

}  // namespace vescomm::internal
