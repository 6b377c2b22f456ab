// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"
#include "gpu/device_call_match.h"
#include "gpu/gpu_libraries.h"
#include "gpu/nccl_communicator.h"
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
// No call waits for the end of NCCL or of other work without a limit. After the limit the memory
// that may still be used is leaked.
//
// Threads: one at a time.
class DeviceCommunicator {
public:
    struct Options {
        std::uint64_t workspace_bytes = 0;
        int min_ctas = 0, max_ctas = 0;  // thread blocks of NCCL's kernels; 0: NCCL chooses
        bool shrinkable = false;  // a failure revokes NCCL's communicator instead of aborting it
        std::string method;  // see DeviceProblem::forced
        std::string nccl_settings;  // see nccl_config.h
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
    // communicator passes and returns nullptr. Waits for the work of the device. The new one must
    // be completed by complete_split(), which is collective over `comm`: a failure there is none of
    // the parent.
    static std::unique_ptr<DeviceCommunicator> split(DeviceCommunicator &parent,
                                                     std::shared_ptr<Communicator> comm,
                                                     const Options &options);
    void complete_split();
    // As split(), for some ranks of `parent` in their order. Collective over `survivors` only.
    // Waits for the work of the device, unless `parent` is broken.
    static std::unique_ptr<DeviceCommunicator> shrink(DeviceCommunicator &parent,
                                                      std::shared_ptr<Communicator> survivors,
                                                      const Options &options);
    // As close(), without its failure.
    ~DeviceCommunicator();

    // Collective, unless the communicator is broken: waits for the work of the device, frees the
    // memory, and ends NCCL's communicator. If the communicator breaks meanwhile, or the deadline
    // passes, aborts NCCL's communicator, and throws the failure at the end. Only the first call
    // has an effect. No other function is called afterwards.
    void close();

    int rank() const { return comm_->rank(); }
    int ranks() const { return comm_->ranks(); }
    int device() const { return nccl_.device(); }
    Communicator &comm() const { return *comm_; }
    const GpuLibraries &libraries() const { return libraries_; }
    nccl::Comm nccl() const { return nccl_.get(); }
    const Options &options() const { return options_; }
    char *workspace() const { return static_cast<char *>(workspace_); }
    // True: NCCL has created its communicator from that of another one.
    bool derived() const { return derived_; }

    // Throws the failure of the communicator or of NCCL; NCCL's communicator then is aborted or
    // revoked. INVALID_ARGUMENT: the communicator was finalized.
    void check();
    // check(), also after the communicator was finalized.
    void check_failures();
    // Throws unless a call can be made: check(), and the current device must be that of create().
    void check_call(const char *function);
    // The same for a call that puts work on the stream: also throws INVALID_ARGUMENT for the
    // default stream while that would make a capture invalid.
    void check_call(const char *function, cuda::Stream stream);
    // Throws unless the current device is that of create().
    void check_device(const char *function);
    // This rank makes a collective call, whose arguments are checked. Throws MISMATCH, which breaks
    // the communicator, if another rank has made a different one.
    void begin_call(const DeviceCall &call, const ExchangeCounts &counts = {});
    // The work of the call is on the stream. It counts for order(), unless the stream is captured.
    void end_call(cuda::Stream stream);
    // Later work of the stream, which is of any device, waits for the calls so far. Throws
    // INVALID_ARGUMENT for a captured stream.
    void order(cuda::Stream stream);
    // Waits until the work of the stream is complete. Throws as check(), and TIMEOUT at the
    // deadline, which breaks the communicator.
    void wait(cuda::Stream stream);

    // Makes a call of NCCL; see NcclCommunicator::watched(). Throws as require().
    template <typename Call>
    void call(const char *function, const Call &call) {
        require(watched(call), function);
    }
    // Returns NCCL's result.
    template <typename Call>
    auto watched(const Call &call) {
        return nccl_.watched(call);
    }
    // Puts work on a stream, by launch(). CUDA makes it wait while the stream has too much work,
    // which may wait for other ranks: as call(). launch() does not throw.
    template <typename Launch>
    void launch(const char *function, const Launch &launch) {
        watched(launch);
        require_not_ended(function);
    }
    // Copies on the device, by launch().
    void copy(void *target, const void *source, std::uint64_t bytes, cuda::Stream stream);
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
    // device is captured. Throws MISMATCH if another rank frees other memory instead. `freed`: the
    // buffer that has the memory.
    void free(void *pointer, int users = 0, const std::optional<DeviceCall::Place> &freed = {});
    // The memory of allocate() that begins there; nullptr if there is none.
    DeviceMemory *find_memory(void *pointer);
    const DeviceMemory *find_memory(void *pointer) const;
    // The place of an array, for comparisons of calls.
    DeviceCall::Place place_of(const void *pointer) const;
    // Collective: the number of the next device buffer. `name`: for errors; empty: it has none.
    std::uint64_t number_buffer(const std::string &name) {
        if (!name.empty()) calls_->name_buffer(buffers_, name);
        return buffers_++;
    }

    // The reason why kernels of ranks cannot read one another's memory, the same on every rank;
    // empty: they can, and there are peer_links().
    const std::string &why_no_peers() const { return why_no_peers_; }
    const PeerLinks *peer_links() const { return peer_links_.get(); }
    // Copies or kernels that use windows of other ranks are put on a stream; see NcclCommunicator.
    void keep_windows() { nccl_.keep_windows(); }

    // Breaks the communicator, and throws.
    [[noreturn]] void fail(vescomm_status_t status, const std::string &why);

private:
    DeviceCommunicator(std::shared_ptr<Communicator> comm, const Options &options,
                       const GpuLibraries &libraries)
        : comm_(std::move(comm)),
          options_(options),
          libraries_(libraries),
          nccl_(*comm_, libraries,
                {.shrinkable = options.shrinkable, .borrowed = options.borrowed != nullptr}) {}

    // Collective: compares the options of all ranks.
    void compare_options(Deadline deadline);
    void connect();
    // Collective: what NCCL's communicator is needed for.
    void complete();
    nccl::Config nccl_config() const;
    // Creates NCCL's communicator. `answers`: of all ranks, the number of the device, and on rank 0
    // NCCL's id.
    void create_nccl(const std::vector<std::string> &answers);
    // If NCCL does not accept two ranks on one GPU: the ranks, and what to do, as the end of a
    // sentence.
    std::string advice_on_devices(const std::string &why,
                                  const std::vector<std::string> &devices) const;
    // Throws unless the caller's communicator of NCCL has the ranks of this one, on this device.
    void check_borrowed(int device) const;
    // Throws INVALID_ARGUMENT if work outside a graph cannot follow the stream, or cannot be
    // followed: it is captured, or it is the default stream, which waits for one that is. `what`:
    // begins the sentence.
    void refuse_capture(cuda::Stream stream, const char *what);
    // fail(), unless the ranks have made different calls: that then is the failure.
    [[noreturn]] void fail_call(vescomm_status_t status, const std::string &why);
    // Throws the failure of NCCL.
    void check_nccl();
    // Throws MISMATCH if the ranks have made different calls.
    void compare_calls();
    // Names what other ranks have not done when a wait ends at its deadline: the end of a sentence.
    std::string late_ranks() const;
    // Polls until NCCL has ended what it does in the background. Returns its result.
    nccl::Result settle(const char *function);
    // Waits until `done` returns true; makes progress on the communicator meanwhile. Throws the
    // failure of the communicator, and TIMEOUT.
    template <typename Done>
    void poll(const char *what, const Done &done);
    // Calls `make_progress`, which throws the failure of the communicator. Kernels of NCCL have
    // ended when it throws.
    template <typename Progress>
    void end_if_broken(const Progress &make_progress);
    // Makes a call of NCCL that waits for other ranks, in a thread of its own. Throws the failure
    // of the communicator, and TIMEOUT; the thread then stays, with what the call owns. Otherwise
    // returns NCCL's result.
    template <typename Call>
    nccl::Result call_in_background(const char *function, const Call &call);

    // ---- device_derive.cc ----

    using Derivation = NcclCommunicator::Derivation;
    // The reason why NCCL cannot create one; empty: it can.
    std::string why_not_derived(const void *function, const char *name) const;
    // Makes `call`, which fills `made`, in a thread of its own. `waiter` waits for it: the failure
    // of its communicator and its deadline end the call, and so does a failure of `child`, which
    // may be nullptr. The call then is ended by a revocation, and this communicator is broken.
    template <typename Call>
    void derive(DeviceCommunicator &waiter, const Communicator *child, const char *function,
                const std::shared_ptr<Derivation> &made, const Call &call);
    // Throws unless the communicator of NCCL has the ranks of this one.
    void check_derived(const char *function, nccl::Comm comm) const;
    // Waits for the work of the device before a derivation.
    void wait_before_derivation(const char *function);

    // Starts a wait for all work of the device; the result is CUDA's error.
    BackgroundCall synchronize_device() const;
    // Waits for all work of the device. Throws as wait(). Returns CUDA's error.
    cuda::Error wait_for_device(const char *what);
    // Waits for all work of the device before the end, also if the communicator was freed. Throws
    // as wait(). Returns false if some may still run.
    bool wait_for_last_work();
    // Ends NCCL's communicator in an orderly way. Throws its failure, and TIMEOUT if another rank
    // does not free the communicator; `comm_` is broken then, unless it was freed.
    void finalize_nccl(bool idle);
    // False if the communicator is broken or was freed.
    bool usable() const;
    // Waits for all work of the device within the limit. Returns false if some may still run.
    bool device_is_idle(Deadline limit) noexcept;
    // The text of an error of CUDA, which it clears: the program does not find it later.
    std::string cuda_reason(cuda::Error error) const;
    std::string reason(nccl::Result result) const { return nccl_.reason(result); }
    static bool failed(nccl::Result state) {
        return state != nccl::success && state != nccl::in_progress;
    }
    // The sentence of an asynchronous error of NCCL, and that of a call of NCCL that failed.
    std::string failure_text(nccl::Result error) const;
    std::string failure_of(const char *function, nccl::Result result) const;
    void register_memory(void *pointer, DeviceMemory &memory);
    // Collective: prepares the kernels that read other ranks' memory, if all ranks can.
    void link_peers();
    // Collective: the addresses of registered memory on all ranks.
    void find_peers(DeviceMemory &memory);
    void release(void *pointer, const DeviceMemory &memory) noexcept;
    // Throws if the watch has ended a call, because of a failure or at the deadline.
    void require_not_ended(const char *function);

    const std::shared_ptr<Communicator> comm_;
    const Options options_;
    const GpuLibraries &libraries_;
    NcclCommunicator nccl_;
    bool derived_ = false;
    std::string why_no_peers_ = "unknown";
    std::unique_ptr<PeerLinks> peer_links_;
    void *workspace_ = nullptr;
    cuda::Event last_work_ = nullptr;  // behind the work of the last call; nullptr: there is none
    std::map<void *, DeviceMemory> memories_;  // of allocate(), by first address
    std::uint64_t allocations_ = 0;  // calls of allocate() that succeeded on all ranks
    std::uint64_t buffers_ = 0;  // calls of number_buffer()
    std::unique_ptr<DeviceCallMatch> calls_;
    RunId last_call_;  // number 0: this rank has made none
    bool closed_ = false;  // close() was called
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
