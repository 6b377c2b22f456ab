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
#include "bootstrap/control.h"
#include "transport/fabric.h"
#include "transport/ucx_context.h"
#include "transport/ucx_hub.h"
#include "transport/ucx_receiver.h"
#include "transport/ucx_worker.h"

namespace vescomm {

// UCX as one process uses it: a worker, and an endpoint to each process on another node, which the
// communicators of the process share.
//
// Communicators are kept apart as far as UCX lets them. One that ends, or breaks, takes back what
// it has not given to UCX, and waits a second for UCX to send or receive the rest. Bytes may be
// stuck for longer where a peer makes no progress, or has lost its network. UCX gives up a single
// message in no other way than by closing the endpoint. Over RDMA that is done: the other
// communicators of this process that use the same peer fail with PEER_FAILED and a sentence that
// says so, and the control plane tells their ranks; the endpoint of the peer need not notice. Those
// of other peers go on. Where UCX holds on to memory even then, all communicators of the fabric
// fail, and the worker ends. Over TCP they all fail at once: UCX 1.13 does not survive that such an
// endpoint is closed, so its worker is left alone from then on.
//
// Threads: safe. One mutex covers the worker and everything else; it is held while UCX makes
// progress and registers memory, never while anything is waited for. on_signal and the Failure of a
// context are called under it, and must not call back.
class UcxFabric final : public Fabric {
public:
    static constexpr const char *name = "ucx";
    static constexpr const char *network = "UCX";

    // Connects this process with its peers, and returns once every connection has worked in both
    // directions. Collective over the ranks of `control`, which number the processes. UCX itself is
    // found at run time: no rank links it.
    //
    // peers    by rank: whether it is on another node. If rank a has b as a peer, b must have a.
    // failure  ends the wait when the control plane reports one
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
    // True: there is an endpoint to a process, or was.
    bool reaches(int process) const noexcept { return hub_.endpoint(process) != nullptr; }

    // For the contexts that are to be opened.
    UcxHub &hub() noexcept { return hub_; }

    // Messages for this context are delivered from now on; its id must not be in use. Before any
    // rank sends, all must have opened theirs: messages for a context that is not open are dropped.
    void open(UcxContext &context);
    // Ends that: tells the peers, and when it returns no byte of its memories is touched any more.
    // `patience_seconds` for UCX to send the goodbyes.
    void close(UcxContext &context, double patience_seconds) noexcept;

    // See Transport.
    bool progress() noexcept;
    int descriptor() const noexcept { return worker_.descriptor(); }
    bool arm() noexcept;

    // Everything below is called with this mutex held.
    std::mutex &mutex() const noexcept { return mutex_; }

    // `memory`: where the put goes; nullptr where it has no bytes.
    void put(UcxContext &context, int process, const Put &put, PutMemory *memory) noexcept;
    // Moves everything along once. True: something moved.
    bool step() noexcept;

    // This process is a child that inherited the fabric: the worker is its parent's.
    bool inherited() const noexcept;

private:
    UcxFabric(const UcxLibrary &ucx, int process, const std::vector<bool> &peers,
              const std::string &interface);

    void wire(Control &control, const Failure &failure, Deadline deadline);
    bool idle() const;
    void wait_for_wiring(const Failure &failure, Deadline deadline);
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
    UcxHub hub_;
    UcxReceiver receiver_;
    const bool over_tcp_;
    bool wired_ = false;
    bool ended_ = false;  // the worker is not used any more
    bool abandoned_ = false;  // and stays until the process ends
};

}  // namespace vescomm
