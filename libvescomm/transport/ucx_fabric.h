// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/failure.h"
#include "base/interrupt.h"
#include "bootstrap/control.h"
#include "transport/fabric.h"
#include "transport/ucx_context.h"
#include "transport/ucx_receiver.h"
#include "transport/ucx_shared.h"
#include "transport/ucx_worker.h"

namespace vescomm::internal {

// UCX in one process: a worker, and an endpoint to each process on another node, shared by the
// communicators of the process.
//
// Communicators are isolated from one another as far as UCX allows. A communicator that ends or
// fails takes back the puts that it has not given to UCX, and waits a second for UCX to send or
// receive the rest. Bytes may be stuck for longer if a peer makes no progress or has lost its
// network. UCX cancels a single message only by closing the endpoint.
//
// Over RDMA the endpoint is closed. The other communicators of this process that use the same peer
// fail with PEER_FAILED and a sentence that gives this reason, and the control plane notifies their
// ranks; the endpoint of the peer may not notice. Communicators with other peers continue. If UCX
// holds on to memory even then, all communicators of the fabric fail, and the worker ends.
//
// Over TCP all communicators fail at once: UCX 1.13 does not survive closing such an endpoint, so
// its worker is never progressed again.
//
// Threads: safe. One mutex covers the worker and everything else. It is held while UCX makes
// progress and registers memory, never during a wait. on_signal and the Failure of a context are
// called under it, and must not call back.
class UcxFabric final : public Fabric {
public:
    static constexpr const char *name = "ucx";
    static constexpr const char *network = "UCX";

    // Connects this process with its peers. Returns once every connection has worked in both
    // directions. Collective over the ranks of `control`, which number the processes. UCX is loaded
    // at run time; no rank links it.
    //
    // peers    by rank: true if it is on another node. If rank a has b as a peer, b must have a.
    // failure  ends the wait when the control plane reports a failure
    //
    // Throws
    //   UNSUPPORTED  UCX is not installed
    //   SYSTEM       UCX has no device, or refuses; a peer's address is damaged
    //   MISMATCH     the ranks have different versions of UCX
    //   TIMEOUT      names the ranks that cannot be reached
    //   PEER_FAILED  names the rank whose connection broke, or that gave up first
    static std::shared_ptr<UcxFabric> connect(Control &control, const std::vector<bool> &peers,
                                              const Failure &failure, Deadline deadline);
    ~UcxFabric() override;
    UcxFabric(const UcxFabric &) = delete;
    UcxFabric &operator=(const UcxFabric &) = delete;

    bool connects(int process) const noexcept override;
    // True if there is or was an endpoint to the process.
    bool reaches(int process) const noexcept { return shared_.endpoint(process) != nullptr; }

    // For contexts that are to be opened.
    UcxShared &shared() noexcept { return shared_; }

    // Delivers messages for this context from now on; its id must not be in use. All ranks must
    // have opened their contexts before any rank sends: messages for a context that is not open are
    // dropped.
    void open(UcxContext &context);
    // Ends delivery and sends the peers a goodbye. After the return no byte of the context's
    // memories is touched. Waits at most `patience_seconds` for UCX to send the goodbyes.
    void close(UcxContext &context, double patience_seconds) noexcept;

    // See Transport.
    bool progress() noexcept;
    int descriptor() const noexcept { return worker_.descriptor(); }
    bool arm() noexcept;

    // The functions below must be called with this mutex held.
    std::mutex &mutex() const noexcept { return mutex_; }

    // `memory`: the target of the put; nullptr if the put has no bytes.
    void put(UcxContext &context, int process, const Put &put, PutMemory *memory) noexcept;
    // Advances all connections once. Returns true if anything advanced.
    bool step() noexcept;

    // True in a child that inherited the fabric by fork(): the worker belongs to its parent.
    bool inherited() const noexcept;

private:
    UcxFabric(const UcxLibrary &ucx, int process, const std::vector<bool> &peers,
              const std::string &interface);

    void wire_up(Control &control, const Failure &failure, Deadline deadline);
    bool idle() const;
    void wait_for_wiring(const Failure &failure, Deadline deadline, InterruptPoll &poll);
    bool wired(std::vector<bool> &welcomed);
    std::string not_connected() const;

    bool move() noexcept;
    bool arm_locked() noexcept;
    template <typename Done>
    bool wait(std::unique_lock<std::mutex> &lock, double seconds, Done done) noexcept;
    void give_up(std::unique_lock<std::mutex> &lock, UcxContext &context) noexcept;
    void end_worker() noexcept;
    void finish_closing() noexcept;
    void abandon() noexcept;
    void fail_all() noexcept;

    const pid_t process_;
    mutable std::mutex mutex_;
    UcxWorker worker_;
    UcxShared shared_;
    UcxReceiver receiver_;
    bool wired_ = false;
    bool ended_ = false;  // the worker is not used any more
    bool abandoned_ = false;  // the worker is never destroyed
};

}  // namespace vescomm::internal
