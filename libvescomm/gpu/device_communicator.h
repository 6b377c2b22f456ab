// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "gpu/background_call.h"
#include "gpu/gpu_libraries.h"
#include "gpu/nccl_watch.h"
#include "gpu/peer_links.h"

namespace vescomm::internal {

// Device memory that is registered with NCCL.
struct DeviceMemory {
    std::uint64_t number = 0;  // allocations before it; the same on every rank
    std::uint64_t bytes = 0;
    nccl::Window window = nullptr;  // nullptr: NCCL has no symmetric memory on these devices
    void *registration = nullptr;  // of ncclCommRegister(), without a window
    int buffers = 0;  // number of DeviceBuffer that use it
    // Its address on each rank, for kernels; empty: not all ranks can address all.
    std::vector<char *> peers;
};

// An NCCL communicator of the ranks of a communicator, each on its GPU, with the memory that is
// registered with it (device_memory.cc). device_collectives.h has its collectives.
//
// The failures of both are one: if NCCL fails, the communicator breaks on all ranks; if the
// communicator is broken, the next check() or wait() aborts NCCL's, which ends its kernels.
//
// No call waits for the end of NCCL without a limit. NCCL ends when no graph holds its work any
// more, and its kernels end only if the earlier work of their streams does. After the limit NCCL's
// communicator, the memory that its kernels may use and the waiting thread are leaked.
//
// Threads: one at a time.
class DeviceCommunicator {
public:
    struct Options {
        std::uint64_t workspace_bytes = 0;
        int min_ctas = 0, max_ctas = 0;  // thread blocks of NCCL's kernels; 0: NCCL chooses
        std::string method;  // see DeviceProblem::forced
        // A communicator of NCCL of the same ranks that the caller has created; it stays the
        // caller's. nullptr: a new one.
        nccl::Comm borrowed = nullptr;
    };

    // Collective, blocking. On the current device of the calling thread. `libraries` outlive it.
    static std::unique_ptr<DeviceCommunicator> create(std::shared_ptr<Communicator> comm,
                                                      const Options &options,
                                                      const GpuLibraries &libraries);
    // Collective, unless the communicator is broken.
    ~DeviceCommunicator();

    int rank() const { return comm_->rank(); }
    int ranks() const { return comm_->ranks(); }
    int device() const { return device_; }
    Communicator &comm() const { return *comm_; }
    const GpuLibraries &libraries() const { return libraries_; }
    nccl::Comm nccl() const { return nccl_; }
    const Options &options() const { return options_; }
    char *workspace() const { return static_cast<char *>(workspace_); }

    // Throws the failure of the communicator or of NCCL; NCCL's communicator then is aborted.
    void check();
    // Throws unless a call can be made: check(), and the current device must be that of create().
    void check_call(const char *function);
    // Waits until the work of the stream is complete. Throws as check(), and TIMEOUT at the
    // deadline, which breaks the communicator.
    void wait(cuda::Stream stream);

    // Makes a call of NCCL that may wait for other ranks, while NCCL connects: in the first calls.
    // The wait ends when the communicator breaks, and at the deadline. Throws as require().
    template <typename Call>
    void call(const char *function, const Call &call) {
        require(watched(call), function);
    }
    // Makes a call of NCCL within the same limits. Returns NCCL's result.
    template <typename Call>
    nccl::Result watched(const Call &call) {
        const NcclWatch::Scope scope(watch_.get());
        return call();
    }
    // Throws if a call of NCCL failed; the communicator then is broken. Waits until NCCL has
    // started the call, if its communicator is the caller's and does not block. No group is open
    // in the calling thread.
    void require(nccl::Result result, const char *function);
    // Throws if a call of CUDA failed; the communicator then is broken, and the error of CUDA is
    // cleared.
    void require_cuda(cuda::Error error, const char *function);

    // Collective, blocking: allocates memory, and registers it once: as a symmetric window of NCCL,
    // or, on devices without symmetric memory, with the communicator only.
    void *allocate(std::uint64_t bytes);
    // Collective, blocking: waits for the work of the device. Throws INVALID_ARGUMENT if no memory
    // of allocate() begins there, if more than `users` buffers use it, or while a stream of the
    // device is captured.
    void free(void *pointer, int users = 0);
    // The memory of allocate() that begins there; nullptr if there is none.
    DeviceMemory *find_memory(void *pointer);
    const DeviceMemory *find_memory(void *pointer) const;

    // The reason why kernels of ranks cannot read one another's memory, the same on every rank;
    // empty: they can, and there are peer_links().
    const std::string &why_no_peers() const { return why_no_peers_; }
    const PeerLinks *peer_links() const { return peer_links_.get(); }

    // Breaks the communicator, and throws.
    [[noreturn]] void fail(vescomm_status_t status, const std::string &why);

private:
    DeviceCommunicator(std::shared_ptr<Communicator> comm, const Options &options,
                       const GpuLibraries &libraries)
        : comm_(std::move(comm)), options_(options), libraries_(libraries) {}

    void connect();
    // The watch of calls on NCCL's communicator.
    std::unique_ptr<NcclWatch> make_watch();
    // Creates NCCL's communicator.
    void create_nccl(const std::string &id);
    // Throws unless the caller's communicator of NCCL has the ranks of this one, on this device.
    void check_borrowed() const;
    // Ends NCCL's communicator in an orderly way. Needs no progress of the communicator, which may
    // have been freed.
    void finalize_nccl() noexcept;
    // Polls until NCCL has ended what it does in the background. Returns its result.
    nccl::Result settle(const char *function);
    // Waits until `done` returns true; makes progress on the communicator meanwhile. Throws the
    // failure of the communicator, and TIMEOUT.
    template <typename Done>
    void poll(const char *what, const Done &done);
    // False if the communicator of NCCL was aborted, also by the watch.
    bool has_nccl() const { return nccl_ != nullptr && !(watch_ && watch_->ended()); }
    // Ends the kernels and the communicator of NCCL within the limit; forgets one of the caller.
    void abort_nccl() noexcept;
    // Limit of a wait for the end of NCCL or of work.
    Deadline end_limit() const;
    // Makes a call of NCCL that waits for other ranks, in a thread of its own. Throws the failure
    // of the communicator, and TIMEOUT; the thread then stays, with what the call owns. Otherwise
    // returns NCCL's result.
    template <typename Call>
    nccl::Result call_in_background(const char *function, const Call &call);
    // Starts `call(cuda)` on the device, in a thread of its own.
    template <typename Call>
    BackgroundCall call_on_device(const Call &call) const;
    // Starts a wait for all work of the device; the result is CUDA's error.
    BackgroundCall synchronize_device() const;
    // Waits for all work of the device. Throws as wait(). Returns CUDA's error.
    cuda::Error wait_for_device(const char *what);
    // False if the communicator is broken or was freed.
    bool usable() const;
    // Waits for all work of the device within the limit. Returns false if some may still run.
    bool device_is_idle() noexcept;
    // Logs that something stays until the process ends.
    void log_leak(const char *what, const char *why) const noexcept;
    // The text of an error of CUDA, which it clears: the program does not find it later.
    std::string cuda_reason(cuda::Error error) const;
    std::string reason(nccl::Result result) const;
    void register_memory(void *pointer, DeviceMemory &memory);
    // Collective: prepares the kernels that read other ranks' memory, if all ranks can.
    void link_peers();
    // Collective: the addresses of registered memory on all ranks.
    void find_peers(DeviceMemory &memory);
    void release(void *pointer, const DeviceMemory &memory) noexcept;

    const std::shared_ptr<Communicator> comm_;
    const Options options_;
    const GpuLibraries &libraries_;
    int device_ = -1;
    nccl::Comm nccl_ = nullptr;  // nullptr: not connected, or aborted
    bool abort_runs_ = false;  // the abort has not ended within its limit
    std::string why_no_peers_ = "unknown";
    std::unique_ptr<PeerLinks> peer_links_;
    std::unique_ptr<NcclWatch> watch_;  // nullptr: the communicator of NCCL is the caller's
    void *workspace_ = nullptr;
    std::map<void *, DeviceMemory> memories_;  // of allocate(), by first address
    std::uint64_t allocations_ = 0;  // calls of allocate() that succeeded on all ranks
};

// The bytes that are allocated and registered for memory of this size.
std::uint64_t registered_bytes(std::uint64_t bytes);

// Collective: the libraries that `find` returns. If it throws on a rank, all ranks throw the error
// of the first such rank, with its number; the communicator stays usable.
const GpuLibraries &agree_on_libraries(Communicator &comm,
                                       const std::function<const GpuLibraries &()> &find);

}  // namespace vescomm::internal
