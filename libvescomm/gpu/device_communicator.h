// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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
// communicator is broken, the next check() or wait() aborts or revokes NCCL's, which ends its
// kernels.
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
        bool shrinkable = false;  // a failure revokes NCCL's communicator instead of aborting it
        std::string method;  // see DeviceProblem::forced
        // A communicator of NCCL of the same ranks that the caller has created; it stays the
        // caller's. nullptr: a new one.
        nccl::Comm borrowed = nullptr;
    };

    // Collective, blocking. On the current device of the calling thread. `libraries` outlive it.
    static std::unique_ptr<DeviceCommunicator> create(std::shared_ptr<Communicator> comm,
                                                      const Options &options,
                                                      const GpuLibraries &libraries);
    // Creates one of the ranks of `comm`, which are ranks of `parent`, from NCCL's communicator of
    // `parent`; decision: docs/design/0036-split-and-shrink-through-nccl.md. If NCCL cannot on one
    // rank, all ranks create it as create() does. Collective over `parent`: a rank in no new
    // communicator passes and returns nullptr. Waits for the work of the device.
    static std::unique_ptr<DeviceCommunicator> split(DeviceCommunicator &parent,
                                                     std::shared_ptr<Communicator> comm,
                                                     const Options &options);
    // As split(), for some ranks of `parent` in their order. Collective over `survivors` only.
    // Waits for the work of the device, unless `parent` is broken.
    static std::unique_ptr<DeviceCommunicator> shrink(DeviceCommunicator &parent,
                                                      std::shared_ptr<Communicator> survivors,
                                                      const Options &options);
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
    // True: NCCL has created its communicator from that of another one.
    bool derived() const { return derived_; }

    // Throws the failure of the communicator or of NCCL; NCCL's communicator then is aborted or
    // revoked.
    void check();
    // Throws unless a call can be made: check(), and the current device must be that of create().
    void check_call(const char *function);
    // Throws unless the current device is that of create().
    void check_device(const char *function);
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

    // Collective: compares the options of all ranks.
    void compare_options(Deadline deadline);
    void connect();
    // Collective: what NCCL's communicator is needed for.
    void complete();
    nccl::Config nccl_config() const;
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
    // False if the communicator of NCCL was aborted or revoked, also by the watch.
    bool has_nccl() const { return nccl_ != nullptr && !revoked_ && !(watch_ && watch_->ended()); }
    // Calls `make_progress`, which throws the failure of the communicator. Kernels of NCCL have
    // ended when it throws.
    template <typename Progress>
    void end_if_broken(const Progress &make_progress);
    // After a failure: ends the kernels of NCCL within the limit, by a revocation or by an abort.
    void end_nccl() noexcept;
    // Revokes NCCL's communicator: its kernels end. Returns false if it does not end within the
    // limit, or if NCCL cannot; the communicator of NCCL is forgotten if it must not be used.
    bool revoke_nccl() noexcept;
    // Forgets NCCL's communicator, which a call that does not return still uses, and logs the leak.
    void forget_nccl(const char *why) noexcept;
    // Ends the kernels and the communicator of NCCL within the limit; forgets one of the caller.
    void abort_nccl() noexcept;
    // Limit of a wait for the end of NCCL or of work.
    Deadline end_limit() const;
    // Makes a call of NCCL that waits for other ranks, in a thread of its own. Throws the failure
    // of the communicator, and TIMEOUT; the thread then stays, with what the call owns. Otherwise
    // returns NCCL's result.
    template <typename Call>
    nccl::Result call_in_background(const char *function, const Call &call);
    // ---- device_derive.cc ----

    // A communicator of NCCL that is created from this one's.
    struct Derivation {
        nccl::Config config;
        std::vector<int> excluded;
        nccl::Comm comm = nullptr;  // valid after the call; nullptr: this rank is in none
        std::atomic<bool> given_up{
            false};  // a thread that has not begun the call does not begin it
    };
    // The reason why NCCL cannot create one; empty: it can.
    std::string why_not_derived(const void *function, const char *name) const;
    // Makes `call`, which fills `made`, in a thread of its own. `waiter` waits for it: the failure
    // of its communicator and its deadline end the call, and so does a failure of `child`, which
    // may be nullptr. The call then is ended by a revocation, and this communicator is broken.
    template <typename Call>
    void derive(DeviceCommunicator &waiter, const Communicator *child, const char *function,
                const std::shared_ptr<Derivation> &made, const Call &call);
    // Ends the call of derive() within the limit. Returns false if it still runs.
    bool end_derivation() noexcept;
    // Throws unless the communicator of NCCL has the ranks of this one.
    void check_derived(const char *function, nccl::Comm comm) const;
    // Aborts a communicator of NCCL within the limit.
    void abort_derived(Derivation &made) const noexcept;
    // Waits for the work of the device before a derivation.
    void wait_before_derivation(const char *function);

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
    bool revoked_ = false;  // nccl_ was revoked, or a revocation of it has failed
    bool derived_ = false;
    // A call that derive() has begun on nccl_, and what it fills.
    std::optional<BackgroundCall> derivation_;
    std::shared_ptr<Derivation> derived_comm_;
    bool abort_runs_ = false;  // the abort has not ended within its limit
    std::string why_no_peers_ = "unknown";
    std::unique_ptr<PeerLinks> peer_links_;
    std::unique_ptr<NcclWatch> watch_;  // nullptr: the communicator of NCCL is the caller's
    void *workspace_ = nullptr;
    std::map<void *, DeviceMemory> memories_;  // of allocate(), by first address
    std::uint64_t allocations_ = 0;  // calls of allocate() that succeeded on all ranks
};

// The status of a failure of NCCL.
vescomm_status_t status_of(nccl::Result result);

// The bytes that are allocated and registered for memory of this size.
std::uint64_t registered_bytes(std::uint64_t bytes);

// Collective: the libraries that `find` returns. If it throws on a rank, all ranks throw the error
// of the first such rank, with its number; the communicator stays usable.
const GpuLibraries &agree_on_libraries(Communicator &comm,
                                       const std::function<const GpuLibraries &()> &find);

}  // namespace vescomm::internal
